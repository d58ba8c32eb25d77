"""Learn RLHF by running it: notebooks that build every component literally, and the package they export

Modules:

- `rlhf_nb.exercises.properties`: Assignments: what must hold of a whole method, whoever wrote it, where many answers are right."""

__version__ = "0.1.0"
