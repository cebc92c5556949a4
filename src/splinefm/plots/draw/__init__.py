"""Functions that draw on a matplotlib `ax`; matplotlib is not imported here."""
