r"""Conditional normalizing flows, built with zuko: the density of the paper.

A flow maps x to a latent z by invertible functions that depend on the class. The change of variables gives
its density [PPCEF Eq. 10]:

.. math:: \log p(x | y) = \log p(z) - \sum_k \log \left| \det \frac{\partial f_k}{\partial z_{k-1}} \right|

There are four architectures: ``maf`` (masked autoregressive, the paper's choice and the default), ``nsf``
(neural splines: higher likelihood, ten times the cost), ``realnvp`` (affine couplings) and ``nice`` (additive
couplings).

Measured properties of a flow that guides a search well: smooth units (with ReLU instead of tanh, a third of
the searches on near-discrete data fail), standardised inputs with a minimum standard deviation, bounded
log-scales, and a little noise on the training rows, without which gradients in near-discrete columns are in
the thousands.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
import zuko
from torch import Tensor, nn
from zuko.flows import MaskedAutoregressiveTransform, UnconditionalDistribution
from zuko.flows.coupling import GeneralCouplingTransform
from zuko.flows.gaussianization import ElementWiseTransform
from zuko.nn import MaskedLinear

from plausiflow.core import (
    Frozen,
    Parameters,
    Training,
    check_query,
    check_rows,
    local_seed,
    negative_log_likelihood,
    train,
)
from plausiflow.densities.stacked import StackedMAF
from plausiflow.errors import InvalidInputError, NotFittedError

Architecture = Literal["maf", "nsf", "realnvp", "nice"]
FLOW_TRAINING = Training(learning_rate=5e-3, patience=10, reductions=2, noise=0.02, tolerance=1e-3)
ARCHITECTURES: tuple[Architecture, ...] = ("maf", "nsf", "realnvp", "nice")


@dataclass(kw_only=True, eq=False)
class ConditionalFlow(Parameters):
    r"""A normalizing flow :math:`p(x | y)`. [PPCEF Eq. 10]

    Attributes:
        architecture: ``maf``, ``nsf``, ``realnvp`` or ``nice``.
        transforms: Number of invertible layers; None for the default of the architecture.
        hidden: Widths of the hidden layers of each network.
        log_scale_bound: Soft bound of :math:`\log` of each layer's scale.
        sd_floor: Added (in quadrature) to the standard deviation of each column, for constant columns.
        given: Columns that are context, like the class: :math:`p(x_{modelled} | x_{given}, y)`.
        training: Training settings; ``noise`` keeps gradients in near-discrete columns small.
        random_state: Seed of the weights and the training.

    Example:
        >>> x, y = torch.rand(64, 2), torch.arange(64) % 2
        >>> flow = ConditionalFlow(training=Training(epochs=1)).fit(x, y)
        >>> flow.log_prob(x, y).shape
        torch.Size([64])
    """

    architecture: Architecture = "maf"
    transforms: int | None = None
    hidden: tuple[int, ...] = (64, 64)
    log_scale_bound: float = 3.0
    sd_floor: float = 0.02
    given: tuple[int, ...] = ()
    training: Training = field(default_factory=lambda: FLOW_TRAINING)
    random_state: int = 0

    n_features_: int = field(init=False, default=0, repr=False)
    n_classes_: int = field(init=False, default=0, repr=False)
    _frozen: Frozen[FlowNetwork] | None = field(init=False, default=None, repr=False)
    _fast: Frozen[StackedMAF] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise InvalidInputError(
                f"`architecture` must be one of {', '.join(ARCHITECTURES)}; got {self.architecture!r}."
            )

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Learn the density of rows ``x`` given their classes ``y`` by maximum likelihood. [PPCEF Eq. 11]"""
        check_rows(x, y, n_classes=n_classes)
        n_features, n_classes = x.shape[1], n_classes or int(y.max()) + 1
        flow = self.build_network(n_features, n_classes).to(x)
        train(
            flow,
            lambda rows, classes: negative_log_likelihood(flow(rows, classes)),
            x,
            y,
            settings=self.training,
            random_state=self.random_state,
            label=f"Training {self.architecture.upper()}",
            prepare=lambda rows, _: flow.standardise(rows[:, flow.modelled], self.sd_floor),
        )
        return self.adopt_network(flow, n_features, n_classes)

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Return :math:`\log p(x | y)`, shape ``(n,)``; follows the dtype and device of ``x``."""
        self.frozen(x)
        check_query(x, y, self.n_features_, self.n_classes_)
        return self.unchecked_log_prob(x, y)

    def unchecked_log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the same without checks; ``maf`` is evaluated by :class:`StackedMAF`."""
        if len(x) == 0:  # zuko cannot reshape an empty table
            return x.sum(dim=1)
        if self.architecture == "maf":
            log_prob: Tensor = self._stacked(x)(x, y)[0]
        else:
            log_prob = self.frozen(x)(x, y)
        return log_prob

    def _stacked(self, like: Tensor) -> StackedMAF:
        self._fast = self._fast or Frozen(StackedMAF([self]))
        return self._fast(like)

    @property
    def has_gradient(self) -> bool:
        """Whether :meth:`value_and_grad` is available."""
        return self.architecture == "maf" and not self.given

    def value_and_grad(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-densities ``(n,)`` and their gradients ``(n, d)`` of ``maf``, without checks."""
        assert self.has_gradient
        flow = self._stacked(x)
        log_prob, gradient = flow.value_and_grad(x, flow.conditions(x, y), torch.ones_like)
        return log_prob[0], gradient

    def to_latent(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the latent z of each row, ``(n, d), (n,) -> (n, d)``; keeps the graph."""
        return self._map(x, y, inverse=False)

    def from_latent(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the row of each latent z, ``(n, d), (n,) -> (n, d)``; keeps the graph.

        A coupling flow needs one pass, an autoregressive one (``maf``, ``nsf``) one per column.
        """
        return self._map(z, y, inverse=True)

    def _map(self, values: Tensor, y: Tensor, *, inverse: bool) -> Tensor:
        flow = self.frozen(values)
        if self.given:
            raise InvalidInputError(
                f"A flow with context columns has no latent for them; got `given={self.given}`. Fit a flow "
                "of all columns, without `given`."
            )
        check_query(values, y, self.n_features_, self.n_classes_)
        if len(values) == 0:
            return values
        return flow.decode(values, y) if inverse else flow.encode(values, y)

    def frozen(self, like: Tensor) -> FlowNetwork:
        """Return the trained module, frozen, in the dtype and on the device of ``like``."""
        return self._fitted()(like)

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        weights = self._fitted().module.state_dict()
        shape = torch.tensor([self.n_features_, self.n_classes_])
        return {"shape": shape} | {f"flow.{k}": v.clone() for k, v in weights.items()}

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned, in a flow with the same settings."""
        n_features, n_classes = state["shape"].tolist()
        flow = self.build_network(n_features, n_classes)
        weights = {k.removeprefix("flow."): v for k, v in state.items() if k.startswith("flow.")}
        expected = {k: v.shape for k, v in flow.state_dict().items()}
        if {k: v.shape for k, v in weights.items()} != expected:
            raise InvalidInputError(
                f"`state` must come from a flow with the settings of {self!r}; its tensors have other names "
                "or shapes. Load it into a flow with the same architecture, transforms and hidden widths."
            )
        flow.to(weights["mean"]).load_state_dict(weights)
        return self.adopt_network(flow, n_features, n_classes)

    def build_network(self, n_features: int, n_classes: int) -> FlowNetwork:
        """Return an untrained network for rows with so many columns and classes."""
        if len({*self.given} & {*range(n_features)}) < len(self.given) or len(self.given) == n_features:
            raise InvalidInputError(
                f"`given` must name different columns below {n_features} and leave at least one to model; "
                f"got {self.given}."
            )
        with local_seed(self.random_state, torch.device("cpu")):
            modelled = [column for column in range(n_features) if column not in self.given]
            n_context = n_classes + len(self.given)
            layers = self._build_layers(len(modelled), n_context)
            return FlowNetwork(layers, modelled, list(self.given), n_classes).float()

    def _build_layers(self, d: int, n_context: int) -> list[nn.Module]:
        if self.architecture in ("maf", "nsf"):
            count = self.transforms or (5 if self.architecture == "maf" else 3)
            shape = (self.architecture, tuple(self.hidden), self.log_scale_bound, d, n_context)
            return [_new_layer(_autoregressive(*shape, descending=i % 2 == 1)) for i in range(count)]
        network = {"hidden_features": self.hidden, "activation": nn.Tanh}
        affine = _affine(self.log_scale_bound)
        additive = {"univariate": zuko.transforms.AdditiveTransform, "shapes": [()]}
        univariate = affine if self.architecture == "realnvp" else additive
        couplings = [
            GeneralCouplingTransform(d, n_context, mask=torch.arange(d) % 2 == i % 2, **univariate, **network)
            for i in range(self.transforms or 8)
        ]
        if self.architecture == "realnvp":
            return couplings
        # Additive couplings preserve volume; one elementwise affine map gives each class its scales.
        return [ElementWiseTransform(d, n_context, **affine, **network), *couplings]

    def adopt_network(self, flow: FlowNetwork, n_features: int, n_classes: int) -> Self:
        """Use a trained network."""
        self.n_features_, self.n_classes_ = n_features, n_classes
        self._frozen, self._fast = Frozen(flow, finish=_merge_masks), None
        return self

    def _fitted(self) -> Frozen[FlowNetwork]:
        if self._frozen is None:
            raise NotFittedError(
                "This flow has not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )
        return self._frozen


def _affine(log_scale_bound: float) -> dict[str, Any]:
    slope = math.exp(-log_scale_bound)
    return {"univariate": partial(zuko.transforms.MonotonicAffineTransform, slope=slope)}


@lru_cache(maxsize=32)
def _autoregressive(
    architecture: Architecture,
    hidden: tuple[int, ...],
    log_scale_bound: float,
    d: int,
    n_context: int,
    *,
    descending: bool,
) -> nn.Module:
    """Return an autoregressive layer, to be copied: what connects to what takes long to find out."""
    spline = {"univariate": zuko.transforms.MonotonicRQSTransform, "shapes": [(8,), (8,), (7,)]}
    univariate = _affine(log_scale_bound) if architecture == "maf" else spline
    ascending = torch.arange(d)
    order = ascending.flip(0) if descending else ascending
    with torch.random.fork_rng(devices=[]):
        layer: nn.Module = MaskedAutoregressiveTransform(
            d, n_context, order=order, hidden_features=hidden, activation=nn.Tanh, **univariate
        )
    return layer


def _new_layer(layer: nn.Module) -> nn.Module:
    """Return a copy of a layer with new random weights."""
    layer = copy.deepcopy(layer).to(torch.get_default_dtype())
    for linear in layer.modules():
        if isinstance(linear, nn.Linear):
            linear.reset_parameters()
    return layer


class FlowNetwork(nn.Module):
    """A standardising affine map and zuko's layers; one-hot class and given columns are the context."""

    mean: Tensor
    sd: Tensor

    def __init__(
        self, layers: list[nn.Module], modelled: list[int], given: list[int], n_classes: int
    ) -> None:
        super().__init__()
        n_features = len(modelled)
        self.modelled, self.given, self.n_classes = modelled, given, n_classes
        base = UnconditionalDistribution(
            zuko.distributions.DiagNormal, torch.zeros(n_features), torch.ones(n_features), buffer=True
        )
        self.flow = zuko.flows.Flow(layers, base)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("sd", torch.ones(n_features))

    def standardise(self, x: Tensor, floor: float, noise: Tensor | None = None) -> None:
        """Centre and scale inputs by training rows with some noise; ``floor`` is for constant columns."""
        variance = x.var(dim=0, unbiased=False) + floor**2
        self.mean.copy_(x.mean(dim=0))
        self.sd.copy_((variance if noise is None else variance + noise.square().mean(dim=0)).sqrt())

    def linear_layers(self) -> list[list[Any]]:
        """Return the layers of the network of each transform; those of a single number have no mask."""
        networks = [transform.hyper for transform in self.flow.transform.transforms]
        return [[layer for layer in network if hasattr(layer, "weight")] for network in networks]

    def encode(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the latents of rows."""
        z: Tensor = self._transform(x, y)((x - self.mean) / self.sd)
        return z

    def decode(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the rows of latents."""
        x: Tensor = self._transform(z, y).inv(z)
        return self.mean + self.sd * x

    def _transform(self, like: Tensor, y: Tensor) -> torch.distributions.Transform:
        transform: torch.distributions.Transform = self.flow(F.one_hot(y, self.n_classes).to(like)).transform
        return transform

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-densities of rows."""
        context = F.one_hot(y, self.n_classes).to(x)
        if self.given:
            x, context = x[:, self.modelled], torch.cat([context, x[:, self.given]], dim=1)
        log_prob: Tensor = self.flow(context).log_prob((x - self.mean) / self.sd)
        return log_prob - self.sd.log().sum()


def _merge_masks(flow: FlowNetwork) -> None:
    """Multiply the masks into the weights of a frozen copy, once instead of in every call."""
    for module in list(flow.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, MaskedLinear):
                # Without memory, and so without random numbers; `skip_init` would import SymPy.
                plain = nn.Linear(child.in_features, child.out_features, device="meta")
                plain.weight = nn.Parameter((child.mask * child.weight).detach(), requires_grad=False)
                plain.bias = nn.Parameter(child.bias.detach().clone(), requires_grad=False)
                setattr(module, name, plain)
