"""Exact curves and surfaces of a segment."""
