"""Incremental learning, under guards."""
