"""Drawing on an `ax` of matplotlib, which is not imported here."""
