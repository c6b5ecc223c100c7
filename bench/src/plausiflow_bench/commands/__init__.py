"""``plausiflow benchmark``: one command for each study.

The command line of plausiflow loads this group through the entry point ``benchmark`` of the entry point group
``plausiflow.commands``.
"""

from plausiflow_bench.commands import batch, groups, numeric, paper, soak, tables, versions
from plausiflow_bench.commands.options import benchmark

__all__ = ["batch", "benchmark", "groups", "numeric", "paper", "soak", "tables", "versions"]
