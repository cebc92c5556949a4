"""The rows that a model learns from."""
