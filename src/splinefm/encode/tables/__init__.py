"""Tables of every kind as Arrow columns: data frames, files, text."""
