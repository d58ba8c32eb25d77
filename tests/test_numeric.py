"The ends of arithmetic: the page is what the script writes, and nan comes only where nan or an infinite number was given."
import subprocess, sys, torch, pytest
from conftest import ROOT
sys.path.insert(0, str(ROOT/"scripts"))
import numeric
from rlhf_nb.best_policy import best_of_n_policy
from rlhf_nb.grpo import ADVANTAGES, pass_at_k
from rlhf_nb.reward import bradley_terry_loss, calibration_bins

@pytest.fixture(scope="module")
def rows(): return numeric.table()

def test_the_page_is_what_the_functions_do(rows): assert numeric.PAGE.read_text("utf-8") == numeric.page(rows), "python scripts/numeric.py"

def test_no_nan_and_no_words_of_torch_where_finite_numbers_were_given(rows):
    assert len(rows) > 25
    wrong = [(name, case, word) for _, name, cells in rows for case, word in cells.items()
             if case in ("0", "1e30", "-1e30", "empty", "one row") and any(
                 x.partition(" in ")[0] in ("nan", "inf", "error") for x in word.split(", ") if x != "said" and "said" not in word)]
    assert not wrong

def test_what_was_nan_or_torchs_own_words():
    big = torch.tensor([1e30, 2.])
    assert bradley_terry_loss(big, big).tolist() == pytest.approx([.6931472] * 2)          # 0 times the infinite square
    with pytest.raises(ValueError, match="needs finite scores"): calibration_bins(torch.tensor([float("inf")]), torch.zeros(1))
    with pytest.raises(ValueError, match="among n = 4 responses, got"): pass_at_k(torch.tensor([5]), 4, 1)
    for fn in ADVANTAGES.values(): assert fn(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)
    logp = torch.tensor([0., -1e4])                                                        # e^-1e4 is 0 in float32
    assert best_of_n_policy(logp, torch.tensor([1., 2.]), 2).tolist() == [0., float("-inf")]
