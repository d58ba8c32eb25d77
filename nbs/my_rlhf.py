"""My RLHF: imitate, learn a reward from comparisons, train on it by PPO, in groups, or by DPO.

Only torch is imported. A language model is one of transformers: model(input_ids=ids,
attention_mask=mask).logits is (b t v). ids (b t): token ids, padded on the right. mask (b t)
bool: True on real tokens. response (b t) bool: True on tokens that the model wrote, its
end included. Entry i of a (b t) tensor belongs to token i.

Each function under "your part" is written in the chapter that it names; the others are given.
`rlhf-nb check mine` says which parts are right."""
import copy
import torch
import torch.nn.functional as F

# your part, 02, 5 min
def logprobs(model, ids, mask):
    "(b t) log-prob of token i given those before it; 0 for the first, which has none before."
    logits = model(input_ids=ids, attention_mask=mask.long()).logits[:, :-1]
    logp = logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return F.pad(logp, (1, 0))

# your part, 04, 8 min
def sft_step(model, optimizer, ids, mask, response):
    "One step on demonstrations; the loss before it, mean nats per response token, a float."
    loss = -logprobs(model, ids, mask)[response].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

# your part, 04, 15 min
@torch.no_grad()
def rollout(model, prompts, max_new, eos, pad, generator):
    """Sample a response to each prompt (lists of ids): ids, mask, response.

    At temperature 1; a row ends with eos, or after max_new tokens."""
    n = torch.tensor([len(p) for p in prompts])             # (b) tokens so far
    ids = torch.full((len(n), int(n.max()) + max_new), pad)
    for row, p in zip(ids, prompts): row[:len(p)] = torch.tensor(p)
    place, rows, start = torch.arange(ids.shape[1]), torch.arange(len(n)), n.clone()
    running = torch.ones(len(n), dtype=torch.bool)
    while running.any() and (n - start).max() < max_new:
        mask = (place < n[:, None]).long()
        logits = model(input_ids=ids, attention_mask=mask).logits[rows, n - 1]
        token = torch.multinomial(logits.float().softmax(-1), 1, generator=generator)[:, 0]
        ids[rows[running], n[running]] = token[running]
        n = n + running
        running = running & (token != eos)
    mask = place < n[:, None]
    return ids, mask, mask & (place >= start[:, None])

class Scores(torch.nn.Module):
    "A number at each token: the body of a language model under a new head that says 0."
    def __init__(self, lm):
        super().__init__()
        self.body = copy.deepcopy(lm.base_model).requires_grad_()
        head = lm.get_output_embeddings().weight
        self.head = torch.nn.Linear(head.shape[1], 1, bias=False).to(head)
        torch.nn.init.zeros_(self.head.weight)
    def forward(self, ids, mask): # (b t) after reading token i
        hidden = self.body(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return self.head(hidden)[..., 0]

def score(model, ids, mask): # of a Scores: (b) the number at each row's last real token
    return model(ids, mask).gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]

# your part, 05, 8 min
def reward_step(model, optimizer, chosen, rejected):
    """One Bradley-Terry step of a Scores on pairs; the mean loss before it, a float.

    chosen and rejected: (ids, mask) each."""
    loss = -F.logsigmoid(score(model, *chosen) - score(model, *rejected)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

# your part, 07, 8 min
def token_rewards(reward, logp, ref_logp, response, beta):
    """(b t) what each token earns: -beta (logp - ref_logp), and the last one the reward (b), too.

    0 outside the response."""
    last = response & (response.flip(1).cumsum(1).flip(1) == 1)
    return torch.where(response, beta * (ref_logp - logp), 0.) + last * reward[:, None]

# your part, 08, 12 min
def gae(reward, value, response, gamma, lam):
    """(b t) advantages and (b t) returns, 0 outside the response.

    value: what the critic says just before token i; nothing is earned after the last."""
    advantage, after, value_after = torch.zeros_like(reward), 0., 0.
    for i in reversed(range(reward.shape[1])):
        delta = reward[:, i] + gamma * value_after - value[:, i]
        after = torch.where(response[:, i], delta + gamma * lam * after, 0.)
        value_after = torch.where(response[:, i], value[:, i], 0.)
        advantage[:, i] = after
    return advantage, torch.where(response, advantage + value, 0.)

def values(critic, ids, mask): # (b t) the critic before token i: what it said after i - 1
    return F.pad(critic(ids, mask)[:, :-1], (1, 0))

# your part, 08, 12 min
def ppo_step(policy, critic, optimizer, ids, mask, response, old_logp, advantage, returns,
             clip=.2, vf=.1):
    """One step of PPO, policy and critic; the loss before it, a float.

    The clipped loss of the policy plus vf times half the critic's squared error, both
    means over response tokens; the value is not clipped."""
    ratio = (logprobs(policy, ids, mask) - old_logp).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    loss = loss + vf * (values(critic, ids, mask) - returns)**2 / 2
    loss = loss[response].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

# your part, 09, 10 min
def group_step(policy, optimizer, ids, mask, response, old_logp, reward, size, clip=.2):
    """One step of RLOO: rows come in groups of `size` answers to one prompt; the loss, a float.

    The advantage of an answer is its reward less the mean of the others of its group; the
    clipped loss is the mean over all response tokens."""
    group = reward.view(-1, size)
    advantage = (group - (group.sum(1, keepdim=True) - group) / (size - 1)).view(-1, 1)
    ratio = (logprobs(policy, ids, mask) - old_logp).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)[response].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

# your part, 09, 12 min
def train_groups(policy, reward_fn, prompts, max_new, eos, pad, generator, n_rollouts=20,
                 n_prompts=8, size=8, lr=.05, see=lambda i: None):
    """RLOO from the policy as it stands, with one Adam throughout; see(i) after rollout i.

    Rollout i = 0, 1, ... draws n_prompts of the prompts, samples `size` answers to each,
    side by side, asks reward_fn(ids, mask, response) once, and takes one group_step."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    for i in range(n_rollouts):
        asked = torch.randint(len(prompts), (n_prompts,), generator=generator).tolist()
        batch = rollout(policy, [prompts[k] for k in asked for _ in range(size)], max_new,
                        eos, pad, generator)
        with torch.no_grad(): logp, reward = logprobs(policy, *batch[:2]), reward_fn(*batch)
        group_step(policy, optimizer, *batch, logp, reward, size)
        see(i)

# your part, 10, 10 min
def dpo_step(policy, ref, optimizer, chosen, rejected, beta):
    """One step of DPO on pairs; the mean loss before it, a float.

    chosen and rejected: (ids, mask, response) each; ref is not trained."""
    def log_ratio(ids, mask, response): # (b) log pi / pi_ref of the response
        with torch.no_grad(): base = logprobs(ref, ids, mask)
        return torch.where(response, logprobs(policy, ids, mask) - base, 0.).sum(1)
    loss = -F.logsigmoid(beta * (log_ratio(*chosen) - log_ratio(*rejected))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

def train_ppo(policy, reward_fn, prompts, max_new, eos, pad, generator, n_rollouts=20,
              n_prompts=64, lr=.05, beta=.1, lam=.95, epochs=4, see=lambda i: None):
    "PPO from the policy as it stands, which is also the reference; see(i) after rollout i."
    ref, critic = copy.deepcopy(policy).requires_grad_(False), Scores(policy)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=lr)
    for i in range(n_rollouts):
        asked = torch.randint(len(prompts), (n_prompts,), generator=generator).tolist()
        batch = rollout(policy, [prompts[k] for k in asked], max_new, eos, pad, generator)
        ids, mask, response = batch
        with torch.no_grad():
            logp, ref_logp = logprobs(policy, ids, mask), logprobs(ref, ids, mask)
            reward = token_rewards(reward_fn(*batch), logp, ref_logp, response, beta)
            advantage, returns = gae(reward, values(critic, ids, mask), response, 1., lam)
            some = advantage[response]                     # over response tokens alone
            advantage = (advantage - some.mean()) / (some.std() + 1e-8)
        for _ in range(epochs):
            ppo_step(policy, critic, optimizer, *batch, logp, advantage, returns)
        see(i)
