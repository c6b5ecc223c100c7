"""Methods for the shared tests, what each must achieve, and problems with known solutions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from plausiflow.core.training import Training
from plausiflow.densities import GMM, ConditionalFlow, Thresholded
from plausiflow.methods import FACE, PPCEF, DiCE, Method, Nearest, NearestDense, Wachter
from plausiflow.models import LinearClassifier
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow_bench.methods import CBCE, CEGP, CEM, Artelt, CeFlow, Diffeomorphic
from plausiflow_bench.methods.fista import FISTA

QUICK_FISTA = FISTA(rounds=3, steps=60)
QUICK_ADAM = PenaltyAdam(steps=120, patience=120, learning_rate=0.02)


@dataclass(frozen=True)
class Entry:
    """How to build a method from its models and ``chunk_size``, and what it must achieve.

    Attributes:
        make: Builds the method.
        feasible: Least share of feasible rows on an easy problem; zero for methods without a density.
        gradients: Whether it searches with gradients.
        linear: Whether it is for linear classifiers only.
    """

    make: Callable[..., Method]
    feasible: float = 1.0
    gradients: bool = True
    linear: bool = False


@cache
def flow_of_the_square():
    """Return an unconditional flow of rows around the centres of the three classes below."""
    x = setting([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]], torch.float64, "cpu").x
    training = Training(epochs=60, learning_rate=5e-3)
    flow = ConditionalFlow(architecture="realnvp", transforms=4, hidden=(16, 16), training=training)
    return flow.fit(x, torch.zeros(len(x), dtype=torch.long), n_classes=1)


METHODS = {
    "PPCEF with SQP": Entry(PPCEF),
    "PPCEF with SQP, quality": Entry(lambda **models: PPCEF(**models, solver=SQP(mode="quality"))),
    "PPCEF with PenaltyAdam": Entry(lambda **models: PPCEF(**models, solver=QUICK_ADAM), feasible=0.9),
    "NNCE": Entry(Nearest, feasible=0.0, gradients=False),
    "NNCE-dense": Entry(NearestDense, gradients=False),
    "CBCE": Entry(CBCE, feasible=0.0, gradients=False),
    "WACH": Entry(lambda **models: Wachter(**models, patience=20, turns=4), feasible=0.0),
    "DiCE": Entry(lambda **models: DiCE(**models, steps=100), feasible=0.0),
    "CEM": Entry(lambda **models: CEM(**models, solver=QUICK_FISTA), feasible=0.0),
    "CEGP": Entry(lambda **models: CEGP(**models, solver=QUICK_FISTA), feasible=0.0),
    "FACE": Entry(lambda **models: FACE(**models, neighbours=80), feasible=0.0, gradients=False),
    "ARTELT": Entry(lambda **models: Artelt(**models, components=[2]), feasible=0.25, linear=True),
    "Diffeomorphic": Entry(
        lambda **models: Diffeomorphic(**models, flow=flow_of_the_square(), learning_rate=0.1, steps=200),
        feasible=0.0,
    ),
    "CeFlow": Entry(
        lambda **models: CeFlow(**models, flow=flow_of_the_square(), furthest=3.0, grid=30),
        feasible=0.0,
        gradients=False,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Rows, their classes, and the models of a method."""

    x: torch.Tensor
    y: torch.Tensor
    classifier: LinearClassifier
    plausibility: Thresholded

    def method(self, entry: Entry, **changed) -> Method:
        models = {"classifier": self.classifier, "plausibility": self.plausibility} | changed
        return entry.make(**models).fit(self.x, self.y)


def setting(centres, dtype, device, n=150):
    """Return round clusters around the centres, mostly in [0, 1]; the nearest centre decides the class."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor(centres, dtype=torch.float64)
    y = torch.arange(n) % len(centres)
    x = (centres[y] + 0.08 * torch.randn(n, 2, generator=generator, dtype=torch.float64)).to(dtype)
    # Twenty times the log-odds of two unit clouds: the nearest centre wins clearly.
    classifier = LinearClassifier.from_weights(20 * centres, -10 * (centres**2).sum(dim=1))
    plausibility = Thresholded(density=GMM(components=1).fit(x, y)).fit(x, y)
    return Setting(x=x.to(device), y=y.to(device), classifier=classifier, plausibility=plausibility)


def assert_same(found, expected, atol=1e-5):
    """Check that results have the same found rows, verdicts and points."""
    assert torch.equal(found.found, expected.found)
    assert torch.equal(found.y_target, expected.y_target)
    assert torch.equal(found.feasible, expected.feasible)
    torch.testing.assert_close(found.x_cf, expected.x_cf, rtol=0, atol=atol, equal_nan=True)


def assert_refused(method, x):
    """Check that no row is found, and that the result gives the reason."""
    found = method.explain(x, 1)
    assert not found.found.any()
    assert type(method.classifier).__name__ in found.reason


def assert_consistent(found):
    """Check that a row is NaN in every entry and without verdict exactly if it was not found."""
    missing = ~found.found
    assert torch.equal(torch.isnan(found.x_cf).any(dim=1), missing)
    assert torch.equal(torch.isnan(found.x_cf).all(dim=1), missing)
    assert (found.y_cf[missing] == -1).all()
    assert (found.y_cf[found.found] >= 0).all()
    assert not found.valid[missing].any()
    assert not found.plausible[missing].any()
    assert torch.isnan(found.log_prob[missing]).all()
