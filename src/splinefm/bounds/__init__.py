"""What scores can do whatever the values of the fields: proven bounds, for all segments at once."""
