"""Studies on mixed tables: measures of the default explainer, sparsity, scarce labels, other libraries."""
