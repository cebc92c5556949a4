"""Remarks: what a fit says to somebody who did not expect it."""
