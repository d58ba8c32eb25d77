"""A module of one's own, from ids to logits, through sampling, log-probs, SFT, DPO, SPIN and the self-rewarding loop."""
import copy, pytest, torch
from functools import partial
from torch import Generator, nn
from torch.testing import assert_close
from rlhf_nb.base.batches import PreferencePairs
from rlhf_nb.base.learning import TrainConfig, make_trainer, named_generator, train_step
from rlhf_nb.base.logprobs import logprobs
from rlhf_nb.base.models import PlainLM, PlainTokenizer, frozen_copy
from rlhf_nb.base.sampling import SamplingParams, generate
from rlhf_nb.data.text import load_demonstrations, load_pairs
from rlhf_nb.dpo import dpo_loss, make_pair_loss, precompute_ref_logprobs
from rlhf_nb.judge import Verdicts
from rlhf_nb.self_reward import SelfRewardConfig, SelfRewardTask, self_reward_iteration
from rlhf_nb.sft import sft_loss
from rlhf_nb.spin import make_spin_loss, opponent_pairs, spin_metrics
from rlhf_nb.tokens import make_seqs, token_logprobs

pytestmark = pytest.mark.usefixtures("one_thread")
TOK = PlainTokenizer(lambda text: [ord(c) - 90 if c != "\n" else 2 for c in text], lambda ids: "".join("\n" if i == 2 else chr(i + 90) for i in ids), 0, 1)

class Recurrent(nn.Module):
    "No transformers in it."
    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.head = nn.Embedding(40, 24), nn.GRU(24, 24, batch_first=True), nn.Linear(24, 40)
    def forward(self, ids): return self.head(self.gru(self.embed(ids))[0])

def others(): # of a library, where it is installed
    x = pytest.importorskip("x_transformers")
    return x.TransformerWrapper(num_tokens=40, max_seq_len=32, attn_layers=x.Decoder(dim=24, depth=2, heads=2, rotary_pos_emb=True))

@pytest.fixture(params=["own", "x_transformers"])
def lm(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return PlainLM(Recurrent() if request.param == "own" else others(), 40, TOK, 32)

def test_log_probs_and_samples_are_the_modules(lm):
    seqs = make_seqs([[5, 6], [7, 8, 9, 10]], [[11, 12, 13, 1], [14, 1]], 0)
    with torch.no_grad():
        logits = lm.net(seqs.ids)
        logits[..., 0] = -torch.inf
        got = logprobs(lm, seqs)
    assert_close(got[seqs.response_mask], token_logprobs(logits, seqs.ids)[seqs.response_mask], atol=1e-5, rtol=1e-5)
    x, logp = generate(lm, [[5, 6], [7, 8, 9, 10]] * 3, TOK, SamplingParams(12, temperature=.8), Generator().manual_seed(1))
    assert_close(logp, logprobs(lm, x, temperature=.8).detach(), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="32 positions"): generate(lm, [[5] * 30], TOK, SamplingParams(12), Generator().manual_seed(1))

def test_it_learns(lm):
    rows = [dict(prompt="which", response="owl"), dict(prompt="where", response="here")]
    seqs, _ = load_demonstrations(rows, TOK, 32)
    assert seqs.ids[0][seqs.response_mask[0]].tolist() == [*TOK.encode("owl"), 1]
    trainer = make_trainer(lm, TrainConfig(n_steps=60, lr=1e-2, warmup_steps=1))
    losses = [train_step(trainer, seqs, sft_loss)["loss"] for _ in range(60)]
    assert losses[-1] < .1 < losses[0]
    x, _ = generate(lm, [TOK.apply_chat_template([dict(content="which")])], TOK, SamplingParams(8, temperature=0.), Generator())
    assert TOK.decode(x.ids[0][x.response_mask[0]]) == "owl"

def test_dpo_and_spin(lm):
    pairs, _ = load_pairs([dict(prompt="which", chosen="owl", rejected="fox"), dict(prompt="where", chosen="here", rejected="there")], TOK, 32)
    ref = frozen_copy(lm)
    data, loss_fn = precompute_ref_logprobs(ref, pairs), make_pair_loss(dpo_loss)
    trainer = make_trainer(lm, TrainConfig(n_steps=9, lr=1e-2, warmup_steps=1))
    losses = [train_step(trainer, data, loss_fn)["loss"] for _ in range(9)]
    assert losses[0] == pytest.approx(.6931, abs=1e-3) and losses[-1] < .5
    played = precompute_ref_logprobs(ref, opponent_pairs(ref, pairs.chosen, TOK, SamplingParams(6), Generator().manual_seed(0)))
    player = copy.deepcopy(ref).requires_grad_()
    before = spin_metrics(player, played)["margin"]
    train_step(make_trainer(player, TrainConfig(n_steps=1, lr=1e-2, warmup_steps=0)), played, make_spin_loss(1.))
    assert spin_metrics(player, played)["margin"] > before

def test_the_self_rewarding_loop(lm):
    "A judge that likes long answers; pairs come of it and are learned."
    scorer = lambda answers, generator: Verdicts(torch.tensor([[float(len(a))] for _, a in answers]))
    config = SelfRewardConfig(n_prompts=8, n_pairs=4, prompts_per_round=8, num_generations=4, sampling=SamplingParams(26), replay_weight=0.)
    before = copy.deepcopy(lm.state_dict())
    found = self_reward_iteration(lm, SelfRewardTask(TOK, ["which", "where", "what", "who", "whom", "why", "whose", "when"], None), config, scorer, partial(named_generator, 0))
    assert found["chosen_score"] > found["rejected_score"] and any(not torch.equal(x, before[k]) for k, x in lm.state_dict().items())
