"""plants: a Flower / scikit-learn app."""
