"""Studies of plausiflow: the paper's evaluation, the published runs, other libraries, speed and scale.

The studies are commands (``plausiflow benchmark --help``). This module exports what is useful in code: the
reader of the published runs, the published flow, and the true density of the loans data.
"""

from plausiflow_bench.published.maf import PublishedMAF
from plausiflow_bench.published.runs import PublishedRun, published_metrics
from plausiflow_bench.true_density import true_density

__version__ = "0.2.0"

__all__ = ["PublishedMAF", "PublishedRun", "published_metrics", "true_density"]
