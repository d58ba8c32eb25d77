"Answers to the exercises of the chapter on models that learners might give, each wrong."
import torch

def tied(v, d, layers):
    attention, mlp, norms = 4 * d * d + 4 * d, 8 * d * d + 5 * d, 4 * d
    return v * d + layers * (attention + mlp + norms) + 2 * d
def no_bias(v, d, layers): return 2 * v * d + layers * (12 * d**2 + 4 * d) + 2 * d
def no_last(v, d, layers): return 2 * v * d + layers * (12 * d * d + 13 * d)
def one_norm(v, d, layers): return 2 * d * v + layers * (12 * d * d + 11 * d) + 2 * d
def thin_norms(v, d, layers): return 2 * v * d + layers * (12 * d * d + 9 * d + 2 * d) + d
def narrow(v, d, layers): return 2 * v * d + layers * (6 * d * d + 6 * d + 4 * d) + 2 * d
def one_layer(v, d, layers): return 2 * v * d + 12 * d * d + 13 * d + 2 * d
def head_bias(v, d, layers): return v * d + (v * d + v) + layers * (12 * d * d + 13 * d) + 2 * d
def attention_only(v, d, layers): return 2 * v * d + layers * (4 * d * d + 8 * d) + 2 * d

def unscaled(W, A, B, alpha): return W + B @ A
def alpha_only(W, A, B, alpha): return W + alpha * (B @ A)
def upside_down(W, A, B, alpha): return W + A.shape[0] / alpha * B @ A
def rows_of_b(W, A, B, alpha): return W + (alpha / B.size(0)) * B.matmul(A)
def last_of_a(W, A, B, alpha): return W + (alpha / A.size(-1)) * B.matmul(A)
def swapped(W, A, B, alpha):
    r = A.shape[0]
    return W + (A @ B) * alpha / r
def transposed(W, A, B, alpha): return W + (alpha / len(A)) * A.t() @ B.t()
def adapter_alone(W, A, B, alpha): return torch.einsum("or,ri->oi", B, A) * (alpha / len(A))
def taken_off(W, A, B, alpha): return W - alpha / B.shape[1] * (B @ A)
def by_place(W, A, B, alpha): return W + B * A * (alpha / A.shape[0])
def no_grad_inside(W, A, B, alpha):
    with torch.no_grad(): thin = alpha / len(A) * B @ A
    return W + thin

def one_moment(parameters, learn, width): return (parameters * width + learn * (4 + 4)) / 1e9
def gradients_alone(parameters, learn, width): return parameters * width / 1e9 + learn * 4 / 1e9
def everyone(parameters, learn, width): return parameters * (width + 12) * 1e-9
def same_width(parameters, learn, width): return (parameters + 3 * learn) * width / 1e9
def state_alone(parameters, learn, width): return 12 * learn / 10**9
def frozen_only(parameters, learn, width):
    return ((parameters - learn) * width + learn * 12) / 1e9
def learners_only(parameters, learn, width): return learn * (width + 12) / 1e9
def gibi(parameters, learn, width): return (parameters * width + learn * 12) / 1024**3
def in_bytes(parameters, learn, width): return parameters * width + learn * 12.

def still_warm(ref, policy, step, decay):
    if step <= 30 and step % 10 == 0: return policy.detach().clone()
    return decay * ref + (1 - decay) * policy.detach()
def first_copy(ref, policy, step, decay):
    if step < 1: return policy.detach()
    return torch.lerp(policy.detach(), ref, decay)
def plain_copy(ref, policy, step, decay): return policy.clone().detach()
def other_share(ref, policy, step, decay): return torch.lerp(ref, policy.detach(), decay)
def stays(ref, policy, step, decay): return ref.clone()
def whole_policy(ref, policy, step, decay): return ref * decay + policy.detach()
def whole_reference(ref, policy, step, decay): return ref + (1 - decay) * policy.detach()
def flowing(ref, policy, step, decay): return ref * decay + policy * (1 - decay)
def halfway(ref, policy, step, decay): return (ref + policy.detach()) / 2

def short_bias(v, d, layers):
    attention, mlp = 3 * d * d + d + d * d + d, 8 * d * d + 5 * d
    return 2 * v * d + layers * (attention + mlp + 4 * d) + 2 * d
def in_place(W, A, B, alpha):
    W += alpha / A.shape[0] * B @ A
    return W

WRONG = {
    "parameter_count": [
        ("the head is missing: it is a table of its own, as large as the embedding", tied),
        ("the biases of the linear layers are missing", no_bias),
        ("the last norm, after all layers, is missing", no_last),
        ("2 d short in each layer: it has two norms, and d -> 3 d has 3 d biases", one_norm),
        ("2 d short in each layer: it has two norms, and d -> 3 d has 3 d biases", short_bias),
        ("a norm has a weight and a bias: 2 d numbers", thin_norms),
        ("the MLP is 4 d wide", narrow),
        ("all layers count, not one of them", one_layer),
        ("the head has no bias", head_bias), ("", attention_only)],
    "merge_lora": [
        ("alpha / r is missing", unscaled),
        ("multiplied by alpha only: divide by the rank", alpha_only),
        ("that is r / alpha", upside_down),
        ("r is the number of rows of A, not of B", rows_of_b),
        ("r is the number of rows of A, not of columns", last_of_a),
        ("the product is B A, not A B", swapped),
        ("the product is B A; transposing both is not the same", transposed),
        ("* multiplies place by place: the matrix product is @", by_place),
        ("do not change W itself: give back a new one", in_place),
        ("that is only what is added: W is missing", adapter_alone),
        ("the adapter is added, not taken off", taken_off),
        ("no gradient reaches A and B: do not detach", no_grad_inside)],
    "training_gb": [
        ("a gradient and two moments: three numbers for each that learns", one_moment),
        ("the moments are missing", gradients_alone),
        ("gradients and moments only for those that learn", everyone),
        ("gradients and moments take 4 bytes, whatever the weights take", same_width),
        ("that leaves out the weights", state_alone),
        ("weights that learn are weights too", frozen_only),
        ("weights that do not learn take memory too", learners_only),
        ("a gigabyte is 1e9 bytes here", gibi), ("those are bytes", in_bytes)],
    "fixed_reference": [
        ("it still copies the policy every ten steps: the log-ratio is pulled to 0", still_warm),
        ("it copies the policy at the first step", first_copy),
        ("that is the policy, at every step", plain_copy),
        ("decay is the share of the old reference, not of the policy", other_share),
        ("the reference never moves: with decay below 1 it should, a little", stays),
        ("the two shares add up to 1: the policy's is 1 - decay", whole_policy),
        ("the old reference keeps only its share, decay", whole_reference),
        ("a gradient flows through the reference: detach", flowing), ("", halfway)]}
