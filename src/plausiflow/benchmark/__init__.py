"""The paper's evaluation: data, published results, runs and tables."""
