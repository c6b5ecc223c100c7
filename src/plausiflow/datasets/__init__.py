"""Named data sets and tables, their folds, and generated loans."""

from plausiflow.datasets import loans, synthetic
from plausiflow.datasets.catalog import check_dataset_name, dataset_names, describe_datasets, load_dataset
from plausiflow.datasets.folds import N_FOLDS, Dataset, Fold
from plausiflow.datasets.tables import Table, describe_tables, load_table, loans_table, table_names

__all__ = [
    "N_FOLDS", "Dataset", "Fold", "Table", "check_dataset_name", "dataset_names", "describe_datasets",
    "describe_tables", "load_dataset", "load_table", "loans", "loans_table", "synthetic", "table_names",
]  # fmt: skip
