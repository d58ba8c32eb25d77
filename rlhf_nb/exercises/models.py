"Exercises of the chapter on models."
import torch
from rlhf_nb.checks import Exercise

def _gen(seed): return torch.Generator().manual_seed(seed)

# ---- how many numbers a GPT-NeoX is made of

def _parameters(v, d, layers, bias=True, mlp=4):
    linear = lambda i, o: i * o + (o if bias else 0)      # noqa: E731
    layer = linear(d, 3 * d) + linear(d, d) + linear(d, mlp * d) + linear(mlp * d, d)
    norm = 2 * d
    return 2 * v * d + layers * (layer + 2 * norm) + norm

parameter_count = Exercise(
    reference=_parameters,
    cases={"ours": (189, 64, 2), "Pythia, 1 billion": (50304, 2048, 16),
           "no layer at all": (10, 16, 0), "one layer": (7, 32, 1), "deep": (100, 48, 24)},
    mistakes={
        "the head is missing: it is a table of its own, as large as the embedding":
            lambda v, d, n: _parameters(v, d, n) - v * d,
        "the biases of the linear layers are missing":
            lambda v, d, n: _parameters(v, d, n, bias=False),
        "the last norm, after all layers, is missing":
            lambda v, d, n: _parameters(v, d, n) - 2 * d,
        "2 d short in each layer: it has two norms, and d -> 3 d has 3 d biases":
            lambda v, d, n: _parameters(v, d, n) - n * 2 * d,
        "a norm has a weight and a bias: 2 d numbers":
            lambda v, d, n: _parameters(v, d, n) - (2 * n + 1) * d,
        "the MLP is 4 d wide": lambda v, d, n: _parameters(v, d, n, mlp=1),
        "all layers count, not one of them": lambda v, d, n: _parameters(v, d, 1),
        "the head has no bias": lambda v, d, n: _parameters(v, d, n) + v})

# ---- LoRA added in

def _merge(W, A, B, alpha, scale=lambda alpha, A, B: alpha / A.shape[0]):
    rows = []
    for o in range(W.shape[0]):
        thin = [sum(B[o, k] * A[k, i] for k in range(A.shape[0])) for i in range(W.shape[1])]
        rows.append(W[o] + scale(alpha, A, B) * torch.stack(thin))
    return torch.stack(rows)

def _lora(o, i, r, seed, grad=False, dtype=torch.float32):
    generator = _gen(seed)
    return tuple(torch.randn(*shape, generator=generator).to(dtype).requires_grad_(grad)
                 for shape in ((o, i), (r, i), (o, r)))

merge_lora = Exercise(
    reference=_merge,
    cases={"wide": (*_lora(3, 5, 2, 0, grad=True), 4.), "tall": (*_lora(6, 2, 3, 1), 1.5),
           "square, all three": (*_lora(4, 4, 4, 2), 16.), "rank 1": (*_lora(3, 4, 1, 3), 2.),
           "B is zero, as at the start": (*_lora(3, 4, 2, 4)[:2], torch.zeros(3, 2), 8.),
           "bf16": (*_lora(3, 5, 2, 5, dtype=torch.bfloat16), 4.)},
    mistakes={
        "alpha / r is missing": lambda *a: _merge(*a, scale=lambda *_: 1),
        "multiplied by alpha only: divide by the rank":
            lambda *a: _merge(*a, scale=lambda alpha, A, B: alpha),
        "that is r / alpha": lambda *a: _merge(*a, scale=lambda alpha, A, B: len(A) / alpha),
        "r is the number of rows of A, not of B":
            lambda *a: _merge(*a, scale=lambda alpha, A, B: alpha / len(B)),
        "r is the number of rows of A, not of columns":
            lambda *a: _merge(*a, scale=lambda alpha, A, B: alpha / A.shape[1]),
        "the product is B A, not A B": lambda W, A, B, alpha: W + alpha / len(A) * (A @ B),
        "the product is B A; transposing both is not the same":
            lambda W, A, B, alpha: W + alpha / len(A) * (A.T @ B.T),
        "* multiplies place by place: the matrix product is @":
            lambda W, A, B, alpha: W + alpha / len(A) * (B * A),
        "do not change W itself: give back a new one":
            lambda W, A, B, alpha: W.add_(alpha / len(A) * (B @ A)),
        "that is only what is added: W is missing": lambda W, *a: _merge(0 * W, *a),
        "the adapter is added, not taken off": lambda W, A, B, alpha: _merge(W, A, B, -alpha),
        "no gradient reaches A and B: do not detach":
            lambda W, A, B, alpha: _merge(W, A.detach(), B.detach(), alpha)})

# ---- memory

def _gb(parameters, learn, width, each=12, base=lambda n, learn: n, unit=1e9):
    return (base(parameters, learn) * width + each * learn) / unit

training_gb = Exercise(
    reference=_gb,
    cases={"all learn, float32": (7e9, 7e9, 4), "LoRA on bfloat16": (7e9, 2e7, 2),
           "nothing learns": (3e9, 0, 2), "a quarter learns": (4e9, 1e9, 4)},
    mistakes={
        "a gradient and two moments: three numbers for each that learns":
            lambda n, k, w: _gb(n, k, w, each=8),
        "the moments are missing": lambda n, k, w: _gb(n, k, w, each=4),
        "gradients and moments only for those that learn": lambda n, k, w: _gb(n, n, w),
        "gradients and moments take 4 bytes, whatever the weights take":
            lambda n, k, w: _gb(n, k, w, each=3 * w),
        "that leaves out the weights": lambda n, k, w: _gb(0, k, w),
        "weights that learn are weights too":
            lambda n, k, w: _gb(n, k, w, base=lambda n, k: n - k),
        "weights that do not learn take memory too":
            lambda n, k, w: _gb(n, k, w, base=lambda n, k: k),
        "a gigabyte is 1e9 bytes here": lambda n, k, w: _gb(n, k, w, unit=2**30),
        "those are bytes": lambda n, k, w: _gb(n, k, w, unit=1)})

# ---- the clinic: a reference that follows

def _follow(ref, policy, step, decay, copies=lambda step: False, flows=False,
            old=lambda d: d, new=lambda d: 1 - d):
    if copies(step): return policy.detach().clone()
    out = old(decay) * ref + new(decay) * policy
    return out if flows else out.detach()

def _two(seed, *shape, grad=False, dtype=torch.float32):
    ref, policy = torch.randn(2, *shape, generator=_gen(seed)).to(dtype)
    return ref, policy.clone().requires_grad_(grad)

fixed_reference = Exercise(
    reference=_follow,
    cases={"decay 1 at the first step": (*_two(0, 2, 3), 0, 1.),
           "decay 1 at step 10": (*_two(1, 2, 3), 10, 1.), "a bias": (*_two(6, 5), 14, .8),
           "decay 1, late": (*_two(2, 3, 1, grad=True), 57, 1.),
           "decay .9 at step 20": (*_two(3, 2, 3, grad=True), 20, .9),
           "decay .9 at step 7": (*_two(4, 1, 4), 7, .9), "decay 0": (*_two(5, 2, 3), 33, 0.),
           "bf16": (*_two(7, 2, 3, dtype=torch.bfloat16), 41, .7)},
    mistakes={
        "it still copies the policy every ten steps: the log-ratio is pulled to 0":
            lambda *a: _follow(*a, copies=lambda step: step <= 30 and step % 10 == 0),
        "it copies the policy at the first step":
            lambda *a: _follow(*a, copies=lambda step: step == 0),
        "that is the policy, at every step": lambda *a: _follow(*a, copies=lambda step: True),
        "decay is the share of the old reference, not of the policy":
            lambda *a: _follow(*a, old=lambda d: 1 - d, new=lambda d: d),
        "the reference never moves: with decay below 1 it should, a little":
            lambda *a: _follow(*a, old=lambda d: 1, new=lambda d: 0),
        "the two shares add up to 1: the policy's is 1 - decay":
            lambda *a: _follow(*a, new=lambda d: 1),
        "the old reference keeps only its share, decay":
            lambda *a: _follow(*a, old=lambda d: 1),
        "a gradient flows through the reference: detach": lambda *a: _follow(*a, flows=True)})
