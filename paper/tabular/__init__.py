"""California housing, Adult, Higgs and Song year."""
