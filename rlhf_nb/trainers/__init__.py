"Loops with settings, metrics and checkpoints, one for each method."
