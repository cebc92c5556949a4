"""splinefm."""
