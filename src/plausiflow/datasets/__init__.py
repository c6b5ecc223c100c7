"""Named data sets and tables, their folds, and generated tables."""

from plausiflow.datasets import contacts, loans, orders, synthetic
from plausiflow.datasets.catalog import check_dataset_name, dataset_names, describe_datasets, load_dataset
from plausiflow.datasets.folds import N_FOLDS, Dataset, Fold
from plausiflow.datasets.planted import Truth, break_truth
from plausiflow.datasets.tables import (
    Table,
    contacts_table,
    describe_tables,
    load_table,
    loans_table,
    orders_table,
    table_names,
)

__all__ = [
    "N_FOLDS", "Dataset", "Fold", "Table", "Truth", "break_truth", "check_dataset_name", "contacts",
    "contacts_table", "dataset_names", "describe_datasets", "describe_tables", "load_dataset", "load_table",
    "loans", "loans_table", "orders", "orders_table", "synthetic", "table_names",
]  # fmt: skip
