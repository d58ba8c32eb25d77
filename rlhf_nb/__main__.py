"`python -m rlhf_nb` is the command `rlhf-nb`."
from rlhf_nb.workbook import main

raise SystemExit(main())
