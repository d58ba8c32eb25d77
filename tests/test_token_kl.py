"KL by token: against a slow sum in plain Python, on both sides of the pads, tempered, on any device."
import math, pytest, torch
from types import SimpleNamespace
from torch import nn
from rlhf_nb.kl import kl_k3
from rlhf_nb.base.models import load_bundled
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.sampling import SamplingParams, generate_many
from rlhf_nb.show.token_kl import estimator_rows, estimators_page, kl_table, show_kl, token_kl, top_tokens
from rlhf_nb.tokens import Seqs, make_seqs
from test_pages import check_page

class Table(nn.Module):
    "A language model whose next token depends on the last one alone: row i of (v v) logits."
    def __init__(self, logits, pad=None):
        super().__init__()
        self.weight = nn.Parameter(logits)
        self.config = SimpleNamespace(vocab_size=len(logits), pad_token_id=pad, eos_token_id=1)
    def forward(self, input_ids, attention_mask, use_cache): return SimpleNamespace(logits=self.weight[input_ids])

GEN = lambda: torch.Generator().manual_seed(0)
def models(v=7, pad=None):
    generator = GEN()
    return [Table(torch.randn(v, v, generator=generator), pad) for _ in range(2)]

def left(seqs):
    order = seqs.attention_mask.long().argsort(dim=1, stable=True)
    return Seqs(*(x.gather(1, order) for x in seqs.parts()))

SEQS = make_seqs([[2, 3], [4], [5, 5, 5]], [[3, 4, 1], [6, 6, 6, 6, 1], []], 0)
WORDS = SimpleNamespace(decode=lambda ids, **_: " ".join(map(str, ids)))

def by_hand(policy, ref, temperature=1., pad=None):
    "{row: [(log p, log q, exact, std) of each response token]}, with the math module alone."
    found = {}
    for i, (ids, real, mask) in enumerate(zip(*(x.tolist() for x in SEQS.parts()))):
        row, n = [t for t, on in zip(ids, real) if on], sum(mask)
        found[i] = []
        for before, y in list(zip(row, row[1:]))[len(row) - 1 - n:] if n else []:
            def dist(model):
                z = [x / temperature for x in model.weight[before].tolist()]
                e = [0. if j == pad else math.exp(x) for j, x in enumerate(z)]
                return [x / sum(e) for x in e]
            p, q = dist(policy), dist(ref)
            d = [math.log(a / b) if a else 0. for a, b in zip(p, q)]
            mean = sum(a * x for a, x in zip(p, d))
            found[i].append((math.log(p[y]), math.log(q[y]), mean,
                             math.sqrt(sum(a * (x - mean)**2 for a, x in zip(p, d)))))
    return found

@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("temperature, pad", [(1., None), (.5, None), (1., 0)])
@pytest.mark.parametrize("mb", [256., 1e-6])                                 # all rows at once, one at a time
def test_every_number_is_that_of_a_sum_by_hand(side, temperature, pad, mb):
    policy, ref = models(pad=pad)
    x = token_kl(policy, ref, left(SEQS) if side == "left" else SEQS, temperature, mb)
    want = by_hand(policy, ref, temperature, pad)
    for i in range(3):
        got = torch.stack([x.logp, x.ref_logp, x.exact, x.std])[:, i][:, x.mask()[i]].T
        assert torch.allclose(got, torch.tensor(want[i]).view(-1, 4), atol=1e-5)
        sums, d = {k: v[i].item() for k, v in x.sums().items()}, [a - b for a, b, *_ in want[i]]
        assert sums["k1"] == pytest.approx(sum(d), rel=1e-4, abs=1e-5)
        assert sums["k3"] == pytest.approx(sum(math.exp(-v) - 1 + v for v in d), rel=1e-4, abs=1e-5)
        assert sums["k2"] == pytest.approx(sum(v * v / 2 for v in d), rel=1e-4, abs=1e-5)
        assert sums["exact"] == pytest.approx(sum(e for *_, e, _ in want[i]), rel=1e-4, abs=1e-5)
        assert sums["noise"] == pytest.approx(math.sqrt(sum(s * s for *_, s in want[i])), rel=1e-4, abs=1e-5)

def test_noise_is_the_spread_of_k1_around_the_exact_sum():
    "20,000 responses of four tokens from the policy: mean of k1 - exact is 0, its std the noise."
    policy, ref = models()
    ids = torch.full((20_000, 1), 2)
    for _ in range(4):
        ids = torch.cat([ids, torch.multinomial(policy.weight[ids[:, -1]].softmax(-1).detach(), 1, generator=GEN()
                         if ids.shape[1] == 1 else torch.Generator().manual_seed(ids.shape[1]))], 1)
    ones = torch.ones_like(ids, dtype=torch.bool)
    mask = ones.clone()
    mask[:, 0] = False
    x = token_kl(policy, ref, Seqs(ids, ones, mask))
    sums = x.sums()
    off = (sums["k1"] - sums["exact"]).double()
    assert abs(off.mean()) < 4 * off.std() / 20_000**.5
    assert off.square().mean().item() == pytest.approx(sums["noise"].double().square().mean().item(), rel=.05)
    rows = {name: rest for name, *rest in estimator_rows(x)}
    assert rows["exact"][0] == pytest.approx(sums["exact"].mean().item()) and rows["exact"][2] == 0.
    assert abs(rows["k3"][2]) < 4 * rows["k3"][3] and abs(rows["k2"][2]) > 10 * rows["k2"][3]

def test_log_probs_are_those_of_the_trainer():
    (policy, tokenizer), (ref, _) = load_bundled("sft"), load_bundled("base")
    prompts = [[tokenizer.eos_token_id, 20, 21], [tokenizer.eos_token_id, 30, 31, 32, 33]]
    seqs, logp = generate_many(policy, prompts, tokenizer, SamplingParams(12, temperature=.7), GEN())
    x = token_kl(policy, ref, seqs, .7)
    torch.testing.assert_close(x.logp, logp, atol=1e-4, rtol=0)
    torch.testing.assert_close(x.ref_logp, logprobs(ref, seqs, temperature=.7).detach(), atol=1e-4, rtol=0)
    other = token_kl(policy, ref, left(seqs), .7)
    torch.testing.assert_close(other.exact[other.mask()], x.exact[x.mask()], atol=1e-5, rtol=0)
    assert (token_kl(policy, policy, seqs).exact == 0).all()

def test_what_cannot_be_compared_is_refused():
    policy, ref = models()
    with pytest.raises(ValueError, match="one vocabulary, got 7 and 5"): token_kl(policy, models(5)[0], make_seqs([[1]], [[2]], 0))
    with pytest.raises(ValueError, match="temperature above 0"): token_kl(policy, ref, SEQS, 0.)
    assert policy.training                                                   # as it was

def test_lora_is_its_own_reference():
    from rlhf_nb.base.models import add_lora
    policy, tokenizer = load_bundled("sft")
    lora = add_lora(policy, 4)
    for name, p in lora.named_parameters():
        if "lora_B" in name: nn.init.normal_(p, std=.05)
    seqs = make_seqs([[5, 6]], [[7, 8, 9]], tokenizer.pad_token_id)
    x = token_kl(lora, lora, seqs)
    plain, _ = load_bundled("sft")
    torch.testing.assert_close(x.ref_logp, logprobs(plain, seqs).detach(), atol=1e-4, rtol=0)
    assert x.exact.sum() > 1e-4

def test_top_tokens_are_the_most_probable():
    policy, ref = models()
    for seqs in (SEQS[:1], left(SEQS)[:1]):
        notes = top_tokens(policy, ref, seqs, WORDS, k=2)
        assert len(notes) == 3
        p = policy.weight[3].softmax(-1)                                     # before the first token stands 3
        best = p.topk(2)
        want = ", ".join(f"{str(i)!r} {x:.3f}" for x, i in zip(best.values.tolist(), best.indices.tolist()))
        assert notes[0].split("\n")[0] == f"policy    {want}" and notes[0].split("\n")[1].startswith("reference ")

def test_the_table_and_the_view():
    policy, ref = models()
    x = token_kl(policy, ref, SEQS)
    table = kl_table(x, WORDS)
    assert table.columns["length"] == [3, 5, 0] and table.ledgers_of(2) == {}
    assert table.columns["largest token"][0] == pytest.approx(x.exact[0].max().item())
    z = (x.sums()["k1"][1] - x.sums()["exact"][1]) / x.sums()["noise"][1]
    assert table.columns["z"][1] == pytest.approx(z.item()) and math.isfinite(table.columns["z"][2])
    ledger = table.ledgers_of(1)["response"]
    k3 = kl_k3(x.logp, x.ref_logp)[1][x.mask()[1]].tolist()
    assert ledger.channels["k3"] == k3 and list(ledger.channels)[:3] == ["exact", "k1", "k3"]
    view = show_kl(SimpleNamespace(seqs=SEQS), WORDS, policy, ref)
    exact = x.sums()["exact"].tolist()
    assert view.rows == sorted(range(3), key=lambda i: -exact[i])
    page = view.still()
    assert "policy  " in page and "KL of 3 responses: exact" in page and page.count("<svg") == 1
    check_page(page)
    check_page(estimators_page(x[:1]))                                       # one row has no standard error

@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_gpu_gives_the_same_numbers():
    policy, ref = models()
    want, got = token_kl(policy, ref, SEQS), token_kl(policy.cuda(), ref.cuda(), SEQS)
    torch.testing.assert_close(got.exact, want.exact, atol=1e-5, rtol=0)
    mixed = token_kl(policy, ref.cpu(), SEQS.to("cuda"))
    torch.testing.assert_close(mixed.exact, want.exact, atol=1e-5, rtol=0)
