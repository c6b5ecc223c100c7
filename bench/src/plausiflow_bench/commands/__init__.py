"""``plausiflow benchmark``: one command for each study.

Installed as the entry point ``benchmark`` of the group ``plausiflow.commands``, from which the command line
of plausiflow takes it.
"""

from plausiflow_bench.commands import batch, paper, studies, tables
from plausiflow_bench.commands.options import benchmark

__all__ = ["batch", "benchmark", "paper", "studies", "tables"]
