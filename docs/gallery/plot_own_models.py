"""
Bring your own density and classifier
=====================================

Nothing has to be subclassed. A classifier is any object with ``logits(x)``, a density any object
with ``fit(x, y)`` and ``log_prob(x, y)``, a plausibility any object with ``score(x, y)``. They take
tensors, treat rows independently, keep the graph, and follow the dtype of their input, because
searches run in double precision.

This example defines a support vector machine, a kernel density with one width per row, and a
plausibility that is not a density. Judges check the answers (:doc:`/concepts`). The last model is a
function of a table.
"""

import math

import matplotlib.pyplot as plt
import pandas as pd
import torch
from sklearn.svm import SVC

import plausiflow as pf
from plausiflow_bench.numeric.figures import draw_search

fold = pf.load_dataset("moons").fold(0)
x, y = fold.x_train, fold.y_train

# %%
# A classifier
# ------------
#
# A support vector machine with a radial kernel, trained by scikit-learn and written in torch, so it has
# gradients. Its decision value is the difference of two logits.


class RadialSVM:
    """A classifier needs ``n_classes``, ``differentiable`` and ``logits``."""

    n_classes = 2
    differentiable = True

    def __init__(self, machine: SVC) -> None:
        self.vectors = torch.as_tensor(machine.support_vectors_)
        self.weights = torch.as_tensor(machine.dual_coef_[0])
        self.bias, self.gamma = float(machine.intercept_[0]), machine.gamma

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """``(n, d) -> (n, 2)``."""
        squared = (x[:, None] - self.vectors.to(x)).square().sum(dim=2)
        value = torch.exp(-self.gamma * squared) @ self.weights.to(x) + self.bias
        return torch.stack([torch.zeros_like(value), value], dim=1)


machine = SVC(gamma=8.0).fit(x, y)
model = RadialSVM(machine)
same = machine.predict(fold.x_test) == pf.predict(model, fold.x_test).numpy()
print(f"A classifier: {isinstance(model, pf.Classifier)}")
print(f"It decides {same.mean():.0%} of the test rows as scikit-learn does.")

# %%
# A density
# ---------
#
# A kernel density whose kernels are as wide as the distance to the tenth neighbour: narrow where there
# are many rows, wide where there are few. It integrates to one.


class AdaptiveKernels:
    """A density needs ``fit`` and ``log_prob``."""

    def fit(self, x: torch.Tensor, y: torch.Tensor) -> "AdaptiveKernels":
        """Store the rows of each class and the widths of their kernels."""
        self.rows = [x[y == k].double() for k in range(int(y.max()) + 1)]
        self.widths = [torch.cdist(rows, rows).kthvalue(11, dim=1).values for rows in self.rows]
        return self

    def log_prob(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """``(n, d), (n,) -> (n,)``."""
        each = [
            self._of_class(x, rows.to(x), h.to(x)) for rows, h in zip(self.rows, self.widths, strict=True)
        ]
        return torch.stack(each, dim=1).gather(1, y[:, None])[:, 0]

    def _of_class(self, x: torch.Tensor, rows: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        d = x.shape[1]
        squared = (x[:, None] - rows).square().sum(dim=2)
        kernels = -squared / (2 * h**2) - d * h.log() - d / 2 * math.log(2 * math.pi)
        return kernels.logsumexp(dim=1) - math.log(len(rows))


# %%
# ``Thresholded`` makes it a plausibility: denser than half of the real rows of the class. A row is
# dense under its own kernel, so the threshold is computed on held-out rows.

own, held_out = slice(0, 600), slice(600, None)
kernels = AdaptiveKernels().fit(x[own], y[own])
dense = pf.Thresholded(density=kernels).fit(x[held_out], y[held_out])
print(f"A density: {isinstance(kernels, pf.Density)}; thresholds: {dense.log_delta_.numpy().round(2)}")

# %%
# A plausibility without a density
# --------------------------------
#
# This plausibility requires that the fifth nearest row of the target class is no farther than that of
# the median row. Its gradient jumps where the neighbours change; the search tolerates that.


class FifthNeighbour:
    """A plausibility needs ``score``."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.rows = [x[y == k].double() for k in range(int(y.max()) + 1)]
        self.most = [torch.cdist(rows, rows).kthvalue(6, dim=1).values.median() for rows in self.rows]

    def score(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """``(n, d), (n,) -> (n,)``, at least zero where plausible."""
        each = [
            1 - (x[:, None] - rows.to(x)).square().sum(dim=2).kthvalue(5, dim=1).values / most.to(x) ** 2
            for rows, most in zip(self.rows, self.most, strict=True)
        ]
        return torch.stack(each, dim=1).gather(1, y[:, None])[:, 0]


near = FifthNeighbour(x, y)
print(f"A plausibility: {isinstance(near, pf.Plausibility)}")

# %%
# Explain
# -------
#
# The method takes them as they are. Red: the region where each finds rows of the target class
# plausible. Blue: the decision boundary. The path shows the iterates of the search.

row = fold.x_test[pf.predict(model, fold.x_test) == 0][:1]
flows = pf.Thresholded(density=pf.ConditionalFlow().fit(x, y)).fit(x, y)
figure, panels = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
methods = {}
for axes, (name, plausibility) in zip(
    panels, {"own kernels": dense, "fifth neighbour": near, "our flow": flows}.items(), strict=True
):
    methods[name] = pf.PPCEF(
        classifier=model, plausibility=plausibility, solver=pf.SQP(trace=True), lower=0.0, upper=1.0
    ).fit(x, y)
    draw_search(
        axes,
        methods[name].explain(row),
        classifier=model,
        plausibility=plausibility,
        x_train=x,
        y_train=y,
        title=name,
    )

# %%
# A second opinion
# ----------------
#
# All test rows, with the other moon as the target. Judges are flows that took no part in any search.
# How often do they accept what the three call plausible?

judges = pf.Judges().fit(x, y)
lines = {}
for name, method in methods.items():
    found = method.explain(fold.x_test)
    accepted = judges.passes(found.x_cf[found.found], found.y_target[found.found])
    lines[name] = {
        "rows": len(found),
        "found": int(found.found.sum()),
        "valid and plausible": int(found.feasible.sum()),
        "mean distance": float((found.x_cf - found.x).norm(dim=1)[found.found].mean()),
        "judges that accept": float(accepted.double().mean()),
    }
pd.DataFrame.from_dict(lines, orient="index").round(3)

# %%
# A function of a table
# ---------------------
#
# ``Explainer`` takes any function of a table, such as this score card, which has no gradient. A
# surrogate guides the search, and the function itself verifies every answer (:doc:`/models`). The
# density is the default of the explainer, which handles categories, missing values and rules.

train, test = pf.load_table("loans").split(400, 60)


def score_card(table: pd.DataFrame) -> pd.Series:
    """Give points to each applicant; with six or more the loan is granted."""
    points = (
        (table["credit_score"] >= 640).astype(int) * 3
        + (table["debt_ratio"] <= 0.35).astype(int) * 2
        + (table["years_employed"] >= 3).astype(int)
        + (table["loan_amount"] <= 0.4 * table["income"]).astype(int) * 2
    )
    return (points >= 6).map({True: "granted", False: "rejected"})


explainer = pf.Explainer(score_card, constraints=[pf.Immutable("age", "sex")], judges=0, confidence=None).fit(
    train.x, train.y
)
print(explainer)
result = explainer.explain(test.x, target="granted")
print(result)
print(f"The function was called {result.model_calls} times, with {result.model_rows} rows in total.")
for label, sentence in result.sentences[result.status["status"] == "found"].iloc[:5].items():
    print(f"{label}: {sentence}")
