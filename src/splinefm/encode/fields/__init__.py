"""Fields: columns with all that it takes to turn their values into features."""
