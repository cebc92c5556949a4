"""Exact attributions: Shapley values, dependence, importance."""
