"""The density that the loans are drawn from, as a judge of studies."""

from __future__ import annotations

from plausiflow.datasets import Fold, true_state
from plausiflow.densities import GMM


def true_density(fold: Fold | None = None) -> GMM:
    """The density that the loans are drawn from, in the fold's scaled space or else in original units.

    Example:
        >>> from plausiflow.datasets import load_dataset
        >>> fold = load_dataset("loans").fold(0)
        >>> true_density(fold).log_prob(fold.x_test, fold.y_test).shape
        torch.Size([1000])
    """
    state = true_state(fold)
    return GMM(components=len(state["0.log_weights"])).load_state(state)
