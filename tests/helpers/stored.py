"""The counterfactuals that the published runs left, and how near a preset comes to them."""

from collections.abc import Callable
from pathlib import Path

import torch

from plausiflow.core.losses import l1_distance, l2_distance
from plausiflow_bench.reference import Reference

BANDS = {
    "moons": 0.01,
    "law": 0.01,
    "wine": 0.01,
    "blobs": 0.01,
    "heloc": 0.01,
    "audit": 0.03,
    "digits": 0.03,
}
"""How far mean distances may be from the stored ones, relatively."""


def against_the_stored(make: Callable, key: str, name: str, directory: Path):
    """Agreement on which rows have an answer, ratios of mean distances, median largest difference.

    Args:
        make: The preset, of a classifier.
        key: What the stored counterfactuals of the method are called.
        name: Of the data set.
        directory: Of the published runs.
    """
    reference = Reference.load(name, directory)
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
