"""What the commands do. Loaded when a command runs, so that help is instant."""
