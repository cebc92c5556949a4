"""What the page of a model is made of: JSON and arrays."""
