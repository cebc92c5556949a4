"""A table of raw columns becomes slots: rows of a table of vectors, and weights."""
