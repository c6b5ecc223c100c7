"""Batch runs: the rows of files of any size, on this machine or on a cluster, each answered exactly once."""

from plausiflow.errors import MissingExtraError
from plausiflow.scale.options import Asked, Chosen, Saved
from plausiflow.scale.where import Where

try:
    from plausiflow.scale.outcome import Outcome
    from plausiflow.scale.run import run_batch
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("pyarrow"):
        raise
    raise MissingExtraError("pyarrow", "files", "A batch run") from error

__all__ = ["Asked", "Chosen", "Outcome", "Saved", "Where", "run_batch"]
