"""The search for settings with Optuna."""
