"""Batch runs: the rows of files of any size, on this machine or on a cluster, each answered exactly once."""

from plausiflow.batch.options import BatchRequest, Chosen, Saved
from plausiflow.batch.where import Where
from plausiflow.errors import MissingExtraError

try:
    from plausiflow.batch.outcome import Outcome
    from plausiflow.batch.run import run_batch
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("pyarrow"):
        raise
    raise MissingExtraError("pyarrow", "files", "A batch run") from error

__all__ = ["BatchRequest", "Chosen", "Outcome", "Saved", "Where", "run_batch"]
