"""Batch runs: explain the rows of files of any size, on this machine or on a cluster, each exactly once."""

from plausiflow.batch.request import BatchRequest, ExplainerLocation, RowSelection
from plausiflow.batch.row_filter import RowFilter
from plausiflow.errors import MissingExtraError

try:
    from plausiflow.batch.run import run_batch
    from plausiflow.batch.summary import BatchSummary
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("pyarrow"):
        raise
    raise MissingExtraError("pyarrow", "files", "A batch run") from error

__all__ = ["BatchRequest", "BatchSummary", "ExplainerLocation", "RowFilter", "RowSelection", "run_batch"]
