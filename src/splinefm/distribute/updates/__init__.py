"""Updates on several ranks: their guard, and the state of their optimizers."""
