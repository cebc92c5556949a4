"""What a fitted model does: curves, surfaces, Shapley values, importance."""
