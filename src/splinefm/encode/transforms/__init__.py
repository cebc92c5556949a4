"""Transforms T(z) of a numerical column to [0, 1]."""
