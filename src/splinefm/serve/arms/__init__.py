"""The models that are served: files, arms of an A/B split, rows and what is wrong with them, drift."""
