"""Fields: columns with all that it takes to encode their values as features."""
