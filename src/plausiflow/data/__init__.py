"""Tables: the named data sets, their folds and their scaling."""

from plausiflow.data.catalog import describe, load, names
from plausiflow.data.dataset import Dataset, Fold

__all__ = ["Dataset", "Fold", "describe", "load", "names"]
