"The loss of one token under each method: what training computes, and the page that shows it."
import math, re, pytest, torch
from dataclasses import replace
from rlhf_nb.base.models import load_bundled
from rlhf_nb.base.sampling import SamplingParams, collect_rollout
from rlhf_nb.show.rollout_view import rollout_to_table, rollouts_to_table, row_page
from rlhf_nb.show.token_loss import LOSS_METHODS, LossRow, loss_pages, loss_terms
from rlhf_nb.data.rollouts import read_rollouts
from rlhf_nb.trainers.grpo_trainer import GRPOConfig, grpo_loss, make_group_experience
from rlhf_nb.trainers.ppo_trainer import RLTask
from rlhf_nb.worlds.world_text import TEST, prompt_ids
from test_pages import check_page
from test_rollout_view import Words, a_rollout

@pytest.fixture(scope="module")
def sampled():
    model, tokenizer = load_bundled("sft")
    prompts = [prompt_ids(tokenizer, q) for q in TEST[:2]]
    def reward_fn(seqs): return torch.tensor([1., .25, -.5, 2., 0., .5])
    return model, tokenizer, collect_rollout(model, model, prompts, reward_fn, tokenizer, SamplingParams(), torch.Generator().manual_seed(0), 3)

@pytest.mark.parametrize("name", [k for k, m in LOSS_METHODS.items() if m.advantage != "own"])
def test_the_terms_of_all_tokens_sum_to_the_loss_that_trains(sampled, name):
    (model, tokenizer, roll), method = sampled, LOSS_METHODS[name]
    mask = roll.seqs.response_mask
    length, low, high = mask.sum(1), *method.clip
    task = RLTask([[5]], len, tokenizer, SamplingParams(max_new_tokens=int(length.max())))
    config = GRPOConfig(beta=0., advantage_fn=method.advantage, token_loss=method.token_loss, loss_type=method.loss_type,
                        importance_sampling_level=method.level, epsilon=min(low, 1.), epsilon_high=min(high, 1e9))
    x = make_group_experience(roll, config, task)
    x = replace(x, logp=x.logp - .3 * torch.randn(mask.shape, generator=torch.Generator().manual_seed(1)) * mask)   # as if it had moved
    loss, _, _ = grpo_loss(model, x, config)
    got = [loss_terms(LossRow(roll.reward, roll.group, length, i, (roll.logp - x.logp)[i][mask[i]],
                              torch.full((int(length[i]),), math.nan)), method) for i in range(len(mask))]
    assert sum(t["loss"].sum() for t in got).item() == pytest.approx(loss.item(), rel=1e-4, abs=1e-5)
    for t in got:                                   # a small step along log π changes the loss as its slope says
        assert t["gradient"].shape == t["advantage"].shape == t["weight"].shape

def test_the_slope_of_a_sequence_method_reaches_every_token():
    x = LossRow(torch.tensor([1., 0.]), torch.zeros(2), torch.tensor([4, 4]), 0, torch.zeros(4), torch.full((4,), math.nan))
    terms = loss_terms(x, LOSS_METHODS["GSPO"])
    bumped = replace(x, log_ratio=torch.tensor([1e-4, 0., 0., 0.]))
    slope = (loss_terms(bumped, LOSS_METHODS["GSPO"])["loss"].sum() - terms["loss"].sum()) / 1e-4
    assert slope.item() == pytest.approx(terms["gradient"][0].item(), rel=1e-3) and slope.item() < 0
    own = replace(x, own=torch.tensor([3., -1., math.nan, 0.]))
    a = loss_terms(own, LOSS_METHODS["PPO"])["advantage"].tolist()
    assert a == [3., -1., .5, 0.]                   # a critic's; where none is known, reward less mean

def test_the_page_has_the_numbers_of_the_token_and_marks_what_differs():
    x = LossRow(torch.tensor([1., 0., 0.]), torch.zeros(3), torch.tensor([2, 3, 5]), 0,
                torch.tensor([math.log(1.5), math.nan]), torch.full((2,), math.nan))
    page, lost = loss_pages(x)
    assert lost == "This token is not learned from."
    rows = dict(re.findall(r"<th>([^<]+)</th><td>(.*?)</td></tr>", page))
    assert rows.keys() == LOSS_METHODS.keys() and "<mark>" not in rows["RLOO"]
    assert rows["RLOO"].split("</td><td>") == ["1 − 0 = 1", "ρ = 1.5", "−1.5·1", "/ 3", "-0.5", "-0.5"]
    assert rows["GRPO"].split("</td><td>")[0] == "<mark>(1 − 0.333) / std = 1.15</mark>" and rows["GRPO"].endswith("<td>0")
    assert rows["Dr. GRPO"].split("</td><td>")[2:] == ["<mark>−min(1.5·0.667, 1.2·0.667)</mark>", "<mark>/ 15</mark>", "-0.0533", "0"]

def test_rollouts_of_anybody_explain_their_tokens(sampled):
    model, tokenizer, roll = sampled
    table = rollout_to_table(roll, tokenizer, now=roll.logp + .3)
    page = row_page(table, 0)
    n = int(roll.seqs.response_mask[0].sum())
    assert page.count('class="w"') == 1 and page.count(" p0\"") == n and "ρ = 1.35" in page     # one ratio, one table
    rows = [dict(prompt="q", response="ab", reward=r, tokens=["a", "b"], logprobs=[-1., -2.], policy_logprobs=[-1., p], ref_logprobs=[-1., -1.])
            for r, p in ((1., -1.5), (0., -2.), (None, -2.))]
    own = rollouts_to_table(read_rollouts(rows))
    assert own.ledgers_of(2)["response"].terms is None                        # nobody scored it
    first, second = own.ledgers_of(0)["response"].terms()
    assert "ρ = 1<" in first and "ρ = 1.65<" in second and "1 − 0 = 1" in first
    check_page(row_page(own, 0))
    assert "loss of the token" not in row_page(rollouts_to_table(read_rollouts([rows[0] | dict(reward=None)])), 0)
    assert "loss of the token" in row_page(rollout_to_table(a_rollout(), Words()), 0)
