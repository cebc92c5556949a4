"""Updates of a fitted model with new rows: the learner, its state on disk, and the guard against bad hours."""
