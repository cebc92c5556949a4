"""A simulation of the paper's A/B test."""
