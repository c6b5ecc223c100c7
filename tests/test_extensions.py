"""A density, a solver, a rule and a method from outside the package, all used through Explainer."""

import numpy as np
import pandas as pd
import torch

import plausiflow as pf
from plausiflow.constraints import Rule
from plausiflow.core import Solution


class Gaussian:  # a density: one diagonal Gaussian for each class
    def fit(self, x, y):
        own = [x[y == k].double() for k in range(int(y.max()) + 1)]
        self.mean, self.sd = (
            torch.stack(part) for part in zip(*[(r.mean(0), r.std(0)) for r in own], strict=True)
        )
        return self

    def log_prob(self, x, y):
        return torch.distributions.Normal(self.mean.to(x)[y], self.sd.to(x)[y]).log_prob(x).sum(1)


class Halving:  # a solver: a start, moved halfway to the factual as long as it stays feasible
    def solve(self, problem, starts=None):
        rows = torch.arange(len(problem.x))
        x = problem.x.clone() if starts is None else starts(rows)[:, 0].clone()
        for _ in range(12):
            closer = (x + problem.x) / 2
            x = torch.where(problem.satisfied(closer, rows)[:, None], closer, x)
        return Solution(x=x, gradients=torch.zeros_like(rows))


class Together(Rule):  # a rule: two features change together or not at all
    def broken(self, changes):
        return changes.changed("a") != changes.changed("b")


class Centre(pf.Method):  # a method: the mean of the training rows of the target class
    def fit(self, x, y):
        self.means = torch.stack([x[y == k].mean(0) for k in range(self.classifier.n_classes)])
        return self

    def search(self, x, y_target):
        return Solution(x=self.means[y_target], gradients=torch.zeros_like(y_target))


def test_a_density_a_solver_a_rule_and_a_method_from_outside_work_through_explainer():
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    y = (x.a + x.b > 0).map({True: "yes", False: "no"})
    parts = {"density": Gaussian(), "solver": Halving(), "constraints": [Together()], "judges": 1}
    for method in (None, Centre):
        explainer = pf.Explainer(pf.LinearClassifier(), method=method, **parts).fit(x, y)
        rows = x[explainer.predict(x) == "no"].iloc[:10]
        result = explainer.explain(rows, target="yes")
        found = result.answers
        assert (result.status["status"] == "found").sum() >= 8
        assert (explainer.predict(found) == "yes").all()
        assert (explainer.score(found, "yes") >= 0).all()
        moved = found[["a", "b"]].to_numpy() != rows[["a", "b"]].to_numpy()[result.of]
        assert (moved[:, 0] == moved[:, 1]).all()
