"""Studies on numeric data sets, in the paper's folds: solvers, densities, judged plausibility, figures."""
