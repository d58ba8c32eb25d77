"`python -m rlhf_nb` is the command `rlhf-nb`."
from rlhf_nb.book.command import main

raise SystemExit(main())
