"The exercises of each chapter: what an answer is compared with, and the slips that have a name."
