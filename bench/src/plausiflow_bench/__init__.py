"""Studies of plausiflow: the paper's evaluation, published runs, peers, speed, scale."""

from plausiflow_bench.published_maf import PublishedMAF
from plausiflow_bench.reference import Reference, published_metrics
from plausiflow_bench.true_density import true_density

__all__ = ["PublishedMAF", "Reference", "published_metrics", "true_density"]
