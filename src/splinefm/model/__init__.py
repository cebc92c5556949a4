"""Slots become scores."""
