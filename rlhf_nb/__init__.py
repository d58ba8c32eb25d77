"""Learn RLHF by running it: notebooks that build every component literally, and the package they export

Modules:

- `rlhf_nb.arithmetic`: A world of small sums in which the reward is computed, not judged, and where copying what most people do is wrong.
- `rlhf_nb.qlearning`: Learn from somebody else's log what each next word will bring, and build a better policy from it."""

__version__ = "0.1.0"
