"""The best items of a catalog for a context."""
