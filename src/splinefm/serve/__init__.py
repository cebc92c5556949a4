"""One row in microseconds."""
