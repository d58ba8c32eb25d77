"What `prove` knows: beside the exercises of a chapter stand the quantities that it explains, with every mistake in them."
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
