"""The model in the browser: what `splinefm explore` serves, and the page itself."""
