"""Criteo's display advertising data."""
