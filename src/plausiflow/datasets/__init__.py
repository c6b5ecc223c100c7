"""Named data sets and tables, their folds and their scaling."""

from plausiflow.datasets.catalog import check_dataset_name, dataset_names, describe_datasets, load_dataset
from plausiflow.datasets.folds import N_FOLDS, Dataset, Fold
from plausiflow.datasets.loans import STEPS, draw, true_log_prob_given
from plausiflow.datasets.synthetic import true_state
from plausiflow.datasets.tables import Table, describe_tables, load_table, loans_table, table_names

__all__ = [
    "N_FOLDS",
    "STEPS",
    "Dataset",
    "Fold",
    "Table",
    "check_dataset_name",
    "describe_datasets",
    "describe_tables",
    "draw",
    "load_dataset",
    "load_table",
    "loans_table",
    "dataset_names",
    "table_names",
    "true_log_prob_given",
    "true_state",
]
