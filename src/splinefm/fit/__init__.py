"""From a table to a fitted model: `fit_model` and the estimators."""
