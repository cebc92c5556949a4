"""One module per command: its options, its help and what it prints. Heavy modules are imported when it runs."""
