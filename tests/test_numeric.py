"The ends of arithmetic: the page is what the script writes, and nan comes only where nan or an infinite number was given."
import subprocess, sys, torch, pytest
from conftest import ROOT
sys.path.insert(0, str(ROOT/"scripts"))
import numeric
from rlhf_nb.base.sampling import GenerationState, SamplingParams, sample_step, sample_tokens
from rlhf_nb.best_policy import best_of_n_policy
from rlhf_nb.compare import OveroptimizationFit, length_controlled_win_rate
from rlhf_nb.grpo import ADVANTAGES, pass_at_k
from rlhf_nb.ppo import gae
from rlhf_nb.reward import bradley_terry_loss, calibration_bins
from rlhf_nb.self_reward import replay_loss
from rlhf_nb.trainers.judge_tools import confusion_matrix
from rlhf_nb.win_rate import bootstrap_interval
from rlhf_nb.worlds.oracle import sample_rows

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

def test_what_ended_raw_silently_or_off_the_end():
    inf, nan = torch.inf, torch.nan
    half = torch.tensor([.5, .5, 0.]).log()
    for row, u in (([nan, 0., 0.], .5), ([-inf] * 3, .5), ([1e30, 0., -inf], .5), ([0., 0., -inf], nan)):      # gave token 3 of 3
        with pytest.raises(ValueError, match=r"no token can be drawn for rows \[1\]"): sample_tokens(
            torch.stack([half, torch.tensor(row)]), torch.tensor([.9, u]))
    assert sample_tokens(half[None], torch.ones(1)).tolist() == [1]                            # and 1 is rounding of below 1
    x = GenerationState([[0]] * 2, SamplingParams(1, temperature=1e-30), (3, 4), torch.rand(2, 1), torch.zeros(2, 1).long(), torch.zeros(2, 1),
                        torch.arange(2), torch.arange(2), torch.zeros(2).bool(), torch.full((2,), -1), 1)
    with pytest.raises(ValueError, match="logits of row 1 "): sample_step(x, torch.tensor([[0., 2., 1., 0., 0.], [0., 1e30, 0., 0., 0.]]))
    for logp in ([200., 0.], [-1e4, -1e4], [nan, 0.]):
        with pytest.raises(ValueError, match="probabilities sum to (inf|0|nan), not 1"): sample_rows(torch.tensor(logp), 3, torch.Generator())
    for score, true in ((7., 0.), (-1., 1.), (1e30, 0.)):                                      # 7 of truth 0 was counted as 1 of truth 1
        with pytest.raises(ValueError, match="from 0 to 5, got"): confusion_matrix(torch.tensor([score]), torch.tensor([true]))
    for n, draws in ((0, 9), (3, 0)):
        with pytest.raises(ValueError, match="must be 1 or more, got 0"): bootstrap_interval(lambda i: 1., n, torch.Generator(), draws)
    with pytest.raises(ValueError, match="mean_length must be above 0"): replay_loss(torch.tensor(1.), torch.zeros(2), 1., 0.)
    assert 1e300 < OveroptimizationFit("RL", 800., 1.).peak() < inf and OveroptimizationFit("best of n", 800., 1.).peak() == 400**2
    assert OveroptimizationFit("RL", 1., 1.).gain(torch.zeros(1).half()).tolist() == [0.]
    assert .5 < length_controlled_win_rate(torch.ones(1), torch.full((1,), 3.)) < 1
    assert [a.shape for a in gae(*torch.zeros(2, 2, 0), torch.zeros(2, 0).bool())] == [(2, 0)] * 2
    assert best_of_n_policy(torch.tensor([0., -inf]).half(), torch.arange(2.).half(), 10**9)[0].item() == 0
