"""Tree ensembles: exact copies of fitted models, and relaxed forests that have gradients."""
