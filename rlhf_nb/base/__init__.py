"What every training shares: settings, files, processes, batches, models, sampling, steps."
