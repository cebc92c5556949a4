"""Doors: the command line and servers."""
