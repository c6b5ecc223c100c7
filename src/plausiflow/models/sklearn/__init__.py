"""Exact conversion of fitted scikit-learn models to torch modules of encoded rows."""
