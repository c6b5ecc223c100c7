"""Tables: the named data sets, their folds and their scaling."""

from plausiflow.data.catalog import Dataset, Fold, describe, load, names

__all__ = ["Dataset", "Fold", "describe", "load", "names"]
