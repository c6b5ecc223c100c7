"""What the tests of searches share: a small table, a linear model and a plausibility in closed form."""

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Allowance, CompiledRules
from plausiflow.core import TargetCriterion, Targets, ValidityConstraint
from plausiflow.densities import row_scores
from plausiflow.models import LinearClassifier
from plausiflow.search.bank import Bank
from plausiflow.search.costs import CostModel
from plausiflow.search.diagnose import AlwaysPlausible
from plausiflow.search.engine import Engine
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.task import SearchTask
from plausiflow.solvers import SQP
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.layout import Scale
from plausiflow.tables.schema import Schema

UNIT = Scale(minimum=0, maximum=1)
ORDERS = {"school": ["none", "basic", "high", "phd"]}


class ClosedForm(ValidityConstraint):
    """Validity in closed form: at least zero where ``value(x_cf, targets)`` is.

    Without targets, the outputs are those of a model that decides for class one there.
    """

    def __init__(self, value):
        def outputs(x_cf, *targets):
            if targets:
                return value(x_cf, *targets)
            own = value(x_cf, None)
            return torch.stack([torch.zeros_like(own), torch.where(own >= 0, own + 1, own)], dim=1)

        super().__init__(outputs=outputs, criterion=TargetCriterion())

    def __call__(self, x_cf, targets, rows=None):
        return self.outputs(x_cf, targets if rows is None else targets[rows])


def as_validity(value):
    """A validity constraint as it is, a function as one in closed form."""
    return value if isinstance(value, ValidityConstraint) else ClosedForm(value)


def applicants(n: int = 300, seed: int = 0, missing: bool = False) -> pd.DataFrame:
    """Numbers on a grid and off it, one with a zero state, categories with and without an order."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": draw.integers(20, 70, n),
            "income": draw.integers(5, 80, n) * 100,
            "savings": draw.uniform(0, 9, n),
            "job": draw.choice(["clerk", "nurse", "smith", "cook"], n),
            "school": draw.choice(ORDERS["school"], n),
            "owns": draw.random(n) < 0.5,
            "gain": np.where(draw.random(n) < 0.6, 0, draw.integers(1, 40, n)),
        }
    )
    if missing:
        frame.loc[draw.random(n) < 0.15, "gain"] = np.nan
        frame.loc[draw.random(n) < 0.15, "job"] = None
    return frame


@dataclass(frozen=True, eq=False)
class Bell:
    """A Gaussian score in closed form: a bar, minus a squared distance, plus what each level is worth.

    For fixed levels the plausible numbers are a ball; class zero sees levels and centre turned around.
    """

    numbers: list[int]
    centre: Tensor
    worth: Tensor
    bar: float = 0.5
    spread: float = 0.35

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Shape ``(n,)``; keeps the graph."""
        sign = torch.where(y == 1, 1.0, -1.0).to(x)
        centre = torch.where(y[:, None] == 1, self.centre.to(x), 1 - self.centre.to(x))
        squared = ((x[:, self.numbers] - centre) ** 2).sum(dim=1)
        return self.bar - 0.5 * squared / self.spread**2 + sign * (x @ self.worth.to(x))


@dataclass(frozen=True, eq=False)
class Setup:
    """A table with everything a search needs."""

    frame: pd.DataFrame
    encoder: Encoder
    engine: Engine
    classifier: LinearClassifier

    @property
    def x(self) -> Tensor:
        """The encoded table."""
        return self.encoder.encode(self.frame).x

    def classes(self, x: Tensor) -> Tensor:
        """What the model decides."""
        return self.classifier.logits(x).argmax(dim=1)

    def task(self, x: Tensor, **settings):
        """The other outcome for some rows."""
        return self.engine.task(x, 1 - self.classes(x), **settings)

    def with_search(self, search: MixedSearch) -> "Setup":
        """The same with another search."""
        return replace(self, engine=replace(self.engine, strategy=search))


def setup(
    frame: pd.DataFrame,
    constraints=(),
    *,
    seed: int = 0,
    bar: float = 0.5,
    worth: float = 0.3,
    weights: Tensor | None = None,
    search: MixedSearch | None = None,
) -> Setup:
    """A random linear model and a random bell over a table."""
    schema = Schema.infer(frame, orders={k: v for k, v in ORDERS.items() if k in frame})
    encoder = Encoder(schema)
    layout = encoder.layout
    rules = CompiledRules(constraints, schema, layout)
    draw = torch.Generator().manual_seed(seed)
    x = encoder.encode(frame).x
    weight = torch.randn(1, layout.width, generator=draw, dtype=torch.float64)
    weight[:, layout.numbers] *= 2
    bias = 0.0123 - (x @ weight[0]).median()[None]  # no row on the boundary
    classifier = LinearClassifier.from_weights(weight, bias)
    levels = [column for block in layout.with_levels for column in block.levels]
    value = torch.zeros(layout.width, dtype=torch.float64)
    value[levels] = worth * torch.randn(len(levels), generator=draw, dtype=torch.float64)
    centre = torch.rand(len(layout.numbers), generator=draw, dtype=torch.float64)
    bell = Bell(layout.numbers, centre, value, bar)

    def validity(x_cf: Tensor, wanted: Targets | Tensor) -> Tensor:
        return TargetCriterion().value(classifier.logits(x_cf), wanted)

    typical = Bank.free_numbers(layout, x)
    bank = {}
    for k in range(2):
        wanted = torch.full((len(x),), k)
        bank[k] = torch.unique(x[(validity(x, wanted) >= 0) & (bell.score(x, wanted) >= 0)], dim=0)
    engine = Engine(
        rules=rules,
        validity=as_validity(validity),
        plausibility=bell,
        bank=Bank(bank, typical),
        cost_model=replace(CostModel.plain(layout), **({} if weights is None else {"weights": weights})),
        strategy=search or MixedSearch(),
    )
    return Setup(frame, encoder, engine, classifier)


def random_rows(layout, n, seed):
    """Encoded rows of a layout, numbers anywhere between zero and one."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, layout.width, generator=generator, dtype=torch.float64)
    codes = [torch.randint(len(b.levels), (n,), generator=generator) for b in layout.with_levels]
    return layout.with_codes(x, torch.stack(codes, dim=1) if codes else torch.zeros(n, 0).long())


def linear_validity(weight, bias):
    """Valid on one side of a hyperplane."""
    return lambda x_cf, _: x_cf @ weight + bias


class Ball:
    """Plausible within a radius of a point, in nats of a Gaussian of standard deviation ``sd``."""

    def __init__(self, columns, centre, radius, sd=0.2):
        self.columns, self.centre, self.radius, self.sd = columns, torch.tensor(centre), radius, sd

    def score(self, x, y):
        squared = ((x[:, self.columns] - self.centre.to(x)) ** 2).sum(dim=1)
        return 0.5 * (self.radius**2 - squared) / self.sd**2


def task_of(layout, x, weights, immutable=(), costs=MappingProxyType({}), **settings):
    """A task of a bare layout; everything may change but what is immutable."""
    levels = torch.zeros_like(x, dtype=torch.bool)
    levels[:, [column for block in layout.with_levels for column in block.levels]] = True
    fixed = torch.zeros(layout.width, dtype=torch.bool)
    fixed[[column for name in immutable for column in layout.block(name).columns]] = True
    none = x[:, :0]
    allowance = Allowance(
        layout=layout,
        x=x,
        lower=torch.where(fixed, x, 0.0),
        upper=torch.where(fixed, x, 1.0),
        levels=levels & (~fixed | (x != 0)),
        possible=torch.ones(len(x), dtype=torch.bool),
        max_changes=None,
        clauses=(),
        offsets=none,
        binding=none.bool(),
    )
    y_target = torch.ones(len(x), dtype=torch.long)
    values = {
        "validity": ClosedForm(lambda x_cf, _: torch.ones_like(x_cf[:, 0])),
        "scores": row_scores(settings.pop("plausibility", AlwaysPlausible()), x, y_target),
    }
    return SearchTask(
        layout=layout,
        x=x,
        targets=Targets(y_target),
        allowance=allowance,
        cost_model=CostModel(layout=layout, weights=torch.as_tensor(weights, dtype=torch.float64), **costs),
        immutable=frozenset(immutable),
        solver=SQP(),
        **values | {k: as_validity(v) if k == "validity" else v for k, v in settings.items()},
    )


def remade(made, validity, plausibility):
    """The same table with another model and density, and the real rows that pass them."""
    bank = {}
    for k in range(2):
        wanted = torch.full((len(made.x),), k)
        fine = (validity(made.x, wanted) >= 0) & (plausibility.score(made.x, wanted) >= 0)
        bank[k] = torch.unique(made.x[fine], dim=0)
    real = Bank(bank, made.engine.bank.typical)
    engine = replace(made.engine, validity=as_validity(validity), plausibility=plausibility, bank=real)
    return replace(made, engine=engine)
