"""Tree ensembles: read exactly from fitted models, and relaxed so that they have gradients."""
