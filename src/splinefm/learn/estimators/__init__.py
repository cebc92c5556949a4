"""The models as scikit-learn estimators."""
