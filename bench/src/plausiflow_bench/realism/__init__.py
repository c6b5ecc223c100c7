"""Realism of counterfactuals on tables with special values, logic and grids."""
