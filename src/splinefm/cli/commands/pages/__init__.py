"""Commands that make a page for the browser."""
