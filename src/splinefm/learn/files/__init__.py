"""Model files: the container, and how a model is described in it."""
