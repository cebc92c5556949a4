"""The training loop: passes over the rows, the judge of epochs, and the run on all rows beside it."""
