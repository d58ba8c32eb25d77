"""The battery of `prove` is what it says: its right ones are finite, its mutants differ from each of them."""
import hashlib, inspect, json
from pathlib import Path
import pytest, torch
import prove_battery as battery

def randn(*shape, seed): return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
MASK = torch.tensor([[0, 1, 1, 1, 0], [0, 0, 1, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
WIDE = torch.cat([MASK[:3], MASK[:3, :1]], 1)

def inputs():
    def p(*shape, seed, fill=None):
        x = randn(*shape, seed=seed)
        return (x if fill is None else x.masked_fill(~MASK, fill)).requires_grad_()
    ids = torch.tensor([[4, 3, 0, 2, 1, 2], [6, 3, 4, 5, 2, 0], [1, 5, 2, 4, 4, 2]])
    out = {}
    tokens = [dict(logits=scale * p(3, 6, 7, seed=0), ids=ids, mask=WIDE, labels=ids.masked_fill(~WIDE, -100)) for scale in (1, 400)]
    out["logprobs"] = out["sft"] = tokens
    out["reward"] = [dict(chosen=s * p(4, seed=1), rejected=s * p(4, seed=2), margin=randn(4, seed=3).abs()) for s in (1, 900, -900)]
    real = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]).bool()
    out["pooling"] = [dict(scores=p(4, 5, seed=1), mask=real)]
    out["kl"] = [dict(logp=p(3, 5, seed=1), ref_logp=randn(3, 5, seed=2)), dict(logp=p(3, 5, seed=1), ref_logp=randn(3, 5, seed=1) + 3e-4)]
    out["gae"] = [dict(rewards=p(4, 5, seed=1), values=p(4, 5, seed=2), mask=MASK, gamma=.9, lam=.8),
                  dict(rewards=p(4, 5, seed=1, fill=torch.nan), values=p(4, 5, seed=2, fill=torch.nan), mask=MASK, gamma=.9, lam=.8)]
    out["ppo"] = out["grpo"] = [dict(
        logp=p(4, 5, seed=1, fill=fill), advantages=randn(4, seed=2), mask=MASK, ref_logp=randn(4, 5, seed=3),
        old_logp=(randn(4, 5, seed=1) + randn(4, 5, seed=6)), epsilon=.2, epsilon_high=.28, beta=.22, max_length=7)
        for fill in (0., torch.nan)]
    out["value"] = [dict(values=p(4, 5, seed=1), returns=randn(4, 5, seed=2), old_values=randn(4, 5, seed=1) + .3 * randn(4, 5, seed=4),
                         mask=MASK, epsilon=.2)]
    out["advantages"] = [
        dict(rewards=torch.tensor([1., 0., 4., 5., 7., 6.5]).double(), group=torch.tensor([0, 0, 0, 1, 1, 1]), group_size=3),
        dict(rewards=torch.tensor([1., 1., 1., 2., 2., 9.]).double(), group=torch.tensor([0, 0, 0, 1, 1, 1]), group_size=3),
        dict(rewards=torch.tensor([1., 5.]).double(), group=torch.tensor([0, 1]), group_size=1)]
    out["dpo"] = [dict(policy_chosen=s * p(4, seed=1), policy_rejected=s * p(4, seed=2), ref_chosen=randn(4, seed=3),
                       ref_rejected=randn(4, seed=4), beta=.1) for s in (1, 9000, -9000)]
    out["judge"] = [dict(reply=x) for x in ("Good. Score: 4", "Score: 2. No, Score: 3", "Score: 45", "None at all", "Score: 0", "7 dogs",
                                            "Score: 3.5", "Score: 2 and later Score: ", "Score: 9", "Score: 4/5", "Score: 4/10")]
    out["q"] = [dict(rewards=randn(3, 5, seed=1), done=torch.tensor([[0, 0, 1, 0, 0]] * 3).bool(), gamma=.9, next_q=randn(3, 5, 4, seed=2))]
    return out

def does(fn, args):
    names = inspect.signature(fn).parameters
    args = {k: (v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v) for k, v in args.items()}
    was = {k: v.detach().clone() for k, v in args.items() if isinstance(v, torch.Tensor)}
    try: out = fn(**{k: args[k] for k in names})
    except Exception as error: return type(error).__name__, [], True
    parts = [x for x in (out if isinstance(out, tuple) else (out,))]
    if not all(isinstance(x, torch.Tensor) for x in parts): return repr(out), [], True
    learns = [v for v in args.values() if isinstance(v, torch.Tensor) and v.requires_grad]
    total = sum(x.nan_to_num(0., 0., 0.).sum() for x in parts)
    grads = torch.autograd.grad(total, learns, allow_unused=True) if total.requires_grad else []
    grads = [torch.zeros(()) if g is None else g.nan_to_num(0., 0., 0.) for g in grads]
    return "tensors", [x.detach() for x in parts] + grads, all(torch.equal(args[k].detach().nan_to_num(), v.nan_to_num()) for k, v in was.items())

def same(a, b):
    if a[0] != b[0] or a[2] != b[2] or len(a[1]) != len(b[1]): return False
    return all(x.shape == y.shape and torch.allclose(x.double(), y.double(), 1e-4, 1e-6, equal_nan=True) for x, y in zip(a[1], b[1]))

@pytest.mark.parametrize("kind", [k for k in battery.WRONG if k != "sampler"])
def test_mutants_differ_from_every_right_one_in_value_gradient_or_what_they_change(kind):
    made = inputs()[kind]
    want = [[does(fn, args) for args in made] for fn in battery.RIGHT[kind]]
    for w in want: assert w[0][0] != "tensors" or all(x.isfinite().all() for x in w[0][1])
    for words, fn in battery.WRONG[kind]:
        got = [does(fn, args) for args in made]
        for w in want: assert not all(map(same, got, w)), f"line {fn.__code__.co_firstlineno}, {words}: it is right"

def test_the_battery_is_as_large_as_it_says():
    assert sum(map(len, battery.WRONG.values())) >= 200 and sum(map(len, battery.RIGHT.values())) >= 60

def test_the_figures_that_are_committed_are_of_this_battery_and_keep_their_goals():
    root = Path(__file__).resolve().parents[1]
    kept = json.loads((root/"benchmarks"/"results"/"prove_battery.json").read_text("utf-8"))
    assert kept["battery"] == hashlib.sha256((root/"tests"/"prove_battery.py").read_bytes()).hexdigest(), "run " + kept["command"]
    assert {k: (x["mutants"], x["right"]) for k, x in kept["kinds"].items()} == {
        k: (len(battery.WRONG[k]), len(battery.RIGHT[k])) for k in battery.WRONG}
    total = kept["total"]
    assert total["accepted"] + total["crashed"] <= .03 * total["mutants"] and total["named"] >= .85 * total["mutants"]
    assert total["right_refused"] == 0 and total["definitions_told"] == total["definitions"]
    assert all(x["slowest_cpu_s"] < 20 for x in kept["kinds"].values())                           # of one function, as it was measured
