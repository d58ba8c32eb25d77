"The engine behind the command line: stages, folders, plans, cards."
