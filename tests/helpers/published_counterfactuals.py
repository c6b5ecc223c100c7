"""Comparison of presets with the stored counterfactuals of the published runs."""

from collections.abc import Callable
from pathlib import Path

import torch

from plausiflow.core.losses import l1_distance, l2_distance
from plausiflow_bench.published.runs import PublishedRun

BANDS = {
    "moons": 0.01,
    "law": 0.01,
    "wine": 0.01,
    "blobs": 0.01,
    "heloc": 0.01,
    "audit": 0.03,
    "digits": 0.03,
}
"""Largest relative difference of mean distances from the stored ones."""


def against_the_stored(make: Callable, key: str, name: str, directory: Path):
    """Return agreement on found rows, ratios of mean distances, median largest difference.

    Args:
        make: Builds the preset from a classifier.
        key: Key of the stored counterfactuals.
        name: Name of the data set.
        directory: Directory of the published runs.
    """
    reference = PublishedRun.load(name, directory)
    x, stored = reference.x_test, reference.counterfactuals[key, "lr"]
    method = make(classifier=reference.classifier("lr")).fit(reference.x_train, reference.y_train)
    found = method.explain(x, "paper")
    there = torch.isfinite(stored).all(dim=1)
    ratios = [
        float(distance(found.x_cf, x)[found.found].mean() / distance(stored, x)[there].mean())
        for distance in (l1_distance, l2_distance)
    ]
    largest = (found.x_cf - stored)[found.found & there].abs().amax(dim=1)
    return float((found.found == there).double().mean()), ratios, float(largest.median())
