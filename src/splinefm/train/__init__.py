"""A table and a model become a `Fitted`."""
