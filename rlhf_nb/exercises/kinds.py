"What `prove` knows: beside the exercises of a chapter stand the quantities that it explains, with every mistake in them."
import torch
from torch import Tensor
from rlhf_nb.book.checks import values_match
from .dpo import DPO
from .grpo import Advantages, GroupLoss
from .judge import Judge
from .kl import KL
from .ppo import GAE, PolicyLoss, ValueLoss
from .qlearning import QTargets
from .reward import BradleyTerry, Pooling
from .sft import SFT
from .tokens import Logprobs, Sampler

PROOF_KINDS = dict(logprobs=Logprobs(), sampler=Sampler(), sft=SFT(), reward=BradleyTerry(), pooling=Pooling(), kl=KL(),
                   gae=GAE(), ppo=PolicyLoss(), value=ValueLoss(), advantages=Advantages(), grpo=GroupLoss(), dpo=DPO(),
                   judge=Judge(), q=QTargets())

SHORT, NONE = "inputs of 16 bits, which are to be widened first", "no token that counts"

def _rows(x): return isinstance(x, Tensor) and x.ndim > 0
def each_tensor(f, case:dict)->dict: # with f of every tensor that has an axis; numbers stay
    return {k: f(x) if _rows(x) else x for k, x in case.items()}

def odd_cases(cases:dict, names): # of any kind; names that a function asks for -> what is special -> arguments
    "Batches at the edge that say the same of every quantity: in 16 bits, and without a token that counts."
    case = [*cases.values()][-1]
    if "generator" in case or not any(map(_rows, case.values())): return {}
    found = {SHORT: each_tensor(lambda x: x.detach().bfloat16().requires_grad_(x.requires_grad)
                          if x.is_floating_point() else x, case)}
    if "scores" in case or not {"mask", "labels"} & set(names): return found      # of no token there is no last one
    return found | {NONE: case | dict(mask=torch.zeros_like(case["mask"])) | (
        dict(labels=torch.full_like(case["labels"], -100)) if "labels" in case else {})}

def split_words(call, cases:dict)->str: # arguments -> a result; cases of a right function
    "How the losses of a batch's last row and of its others make that of the batch; or whether rows meet each other."
    case = next(iter(cases.values()))
    n = min((len(x) for x in case.values() if _rows(x)), default=1)
    if "group" in case: n = case["group"].unique().numel()                        # a group stays whole
    if n < 2 or "generator" in case: return ""
    def part(a, b): return each_tensor(lambda x: x.detach()[len(x) * a // n:len(x) * b // n], case)
    whole, some, last = call(case), call(part(0, n - 1)), call(part(n - 1, n))
    if isinstance(whole, tuple): whole, some, last = whole[0], some[0], last[0]
    if not all(isinstance(x, Tensor) for x in (whole, some, last)): return ""
    if whole.ndim: return "" if values_match(torch.cat([some, last]), whole, 1e-6) else (
        "rows depend on the rest of their batch: with another batch size other numbers come back")
    ways = {"by their rows": (1 - 1 / n, 1 / n), "by 1: they add up": (1., 1.)}
    if "mask" in case: ways["by their tokens"] = [part(a, b)["mask"].sum() / case["mask"].sum() for a, b in ((0, n - 1), (n - 1, n))]
    words = next((k for k, (a, b) in ways.items() if values_match(a * some + b * last, whole, 1e-6)), "")
    return f"micro-batches give the batch's loss if theirs are weighed {words}" if words else (
        "no weighing of micro-batches gives the batch's loss: what it divides by is of the whole batch")

def broken_rules(
    call,             # arguments by name -> a result, None where it raises
    same,             # of two results
    cases:dict[str,dict],      # what is special -> arguments with a `mask`
)->dict:         # sentence -> of a case, what comes before and after; None where they agree
    "What changes a result although no definition lets it: padding, what is masked, the order of rows."
    def changed(f, back=lambda y: y): # with other arguments (b ...): is the result another one?
        def both(case):
            mask, was = case["mask"], call(case)
            now = call(each_tensor(lambda x: f(x.detach(), mask) if len(x) == len(mask) else x, case))
            if not isinstance(now, Tensor) or not isinstance(was, Tensor): return None
            if (now := back(now)).shape != was.shape: return was, now
            kept = mask if was.shape == mask.shape else torch.ones_like(was)
            return None if same(now * kept, was * kept) else (was, now)
        return both
    rules = {"what stands outside of the mask, prompt or pads, reaches the result": (
        lambda x, m: x.where(m, 7.) if x.shape == m.shape and x.is_floating_point() else x,),
        "a column of padding changes the result": (lambda x, m: torch.cat([x, torch.zeros_like(
            x[:, :1])], 1) if x.ndim > 1 else x, lambda y: y[:, :-1] if y.ndim > 1 else y),
        "the order of the rows changes the result": (
            lambda x, m: x.flip(0), lambda y: y.flip(0) if y.ndim else y)}
    found = {words: changed(*change) for words, change in rules.items()}
    return {words: both for words, both in found.items() if any(map(both, cases.values()))}
