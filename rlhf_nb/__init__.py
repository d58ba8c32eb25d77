"""Learn RLHF by running it: notebooks that build every component literally, and the package they export"""

__version__ = "0.1.0"
