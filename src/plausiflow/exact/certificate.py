"""Certificates: what is proven about the cost of counterfactuals of one row, and its words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

CertificateStatus = Literal["optimal", "bound", "no_recourse", "not_reached", "not_possible", ""]
"""``optimal``: the cheapest cost is known. ``bound``: nothing is cheaper than the bound. ``no_recourse``: no
allowed row is decided as wanted. ``not_reached``: nothing was proven in time. ``not_possible``: the model
cannot be proven anything about. Empty: there is nothing to prove."""
GAP = 1e-3
"""Relative difference up to which a cost counts as the cheapest."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is proven about one row, by the model and the rules alone; the density does not count.

    Attributes:
        status: What kind of proof it is.
        bound: No allowed row that the model decides as wanted costs less; infinite without recourse, NaN if
            nothing is proven.
        relax: The fewest rules to relax, as people write them; empty if unknown.
        relaxed_features: Features that these rules keep.
        reason: Why a proof is not possible, or what it does not cover.
        seconds: Seconds that the proof took.
    """

    status: CertificateStatus = ""
    bound: float = math.nan
    relax: tuple[str, ...] = ()
    relaxed_features: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    def sentence(self, cost: float, target: str, *, density: bool) -> str:
        """Return the certificate in words; empty if there is nothing to say.

        Args:
            cost: The cost of the row's best answer; NaN without one.
            target: The target outcome in words.
            density: Whether answers must be plausible.
        """
        if self.status == "not_possible":
            return f"No proof is possible: {self.reason}"
        if self.status == "not_reached":
            return "Nothing was proven in the time given"
        if self.status == "no_recourse":
            return self._no_recourse(target)
        if not self.status or math.isnan(self.bound):
            return ""
        if math.isnan(cost):
            return f"Proven: every allowed change that leads to {target} costs at least {self.bound:.3g}"
        if cost <= self.bound * (1 + GAP) + 1e-9:
            return "Proven cheapest"
        gap = (cost - self.bound) / cost
        if density:
            cheapest = "The cheapest allowed change" if self.status == "optimal" else "Every allowed change"
            costs = (
                f"costs {self.bound:.3g}" if self.status == "optimal" else f"costs at least {self.bound:.3g}"
            )
            return (
                f"{cheapest} that leads to {target}, plausible or not, {costs} (proven); the difference to "
                f"{cost:.3g} is at most the price of plausibility, {cost - self.bound:.3g}"
            )
        return f"Within {gap / (1 - gap):.1%} of the cheapest possible (proven)"

    def _no_recourse(self, target: str) -> str:
        text = f"Proven: no change of the allowed features leads to {target}"
        if not self.relax:
            return f"{text}; {self.reason}" if self.reason else text
        features = " and ".join(f"`{name}`" for name in self.relaxed_features)
        if len(self.relaxed_features) == len(self.relax):
            return f"{text}; allow {features} to change and there is one"
        return f"{text}; without {' and '.join(self.relax)} there is one"
