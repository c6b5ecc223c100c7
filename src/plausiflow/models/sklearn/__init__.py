"""Fitted scikit-learn models, converted exactly to torch modules over encoded rows."""
