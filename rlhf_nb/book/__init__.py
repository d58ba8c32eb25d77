"The learner's copy, checks, and the command itself."
