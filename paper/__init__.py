"""The paper's experiments, repeated."""
