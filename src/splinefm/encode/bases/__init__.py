"""Function bases on [0, 1], their splines and polynomials."""
