r"""A one-cycle training of several networks of the same shape, stacked along a first dimension.

One optimiser step trains all members. The learning rate rises and falls once over a fixed number of epochs
(Smith and Topin, 2018), so no rows are held back to stop early. Each member has its own rows, their order,
noise, initial weights and limit of its gradient. What members that are trained together share are two
settings: the weight decay and the length of the training, chosen by how well they know rows of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from plausiflow.core import Training, negative_log_likelihood
from plausiflow.densities.adam import Adam, learning_rates
from plausiflow.errors import TrainingError
from plausiflow.progress import progress_bar
from plausiflow.validation import is_whole, raise_unless, to_float

BETAS = (0.9, 0.99)
SMALLEST_BATCH, BATCHES = 64, 8
"""Few rows are split into this many batches, but not into smaller ones."""
SHORT, SMALL_GAP, DECAY_PER_GAP = 10, 0.02, 40.0
"""Epochs of the first training, at most; by how many nats per feature members may know their own rows better
after it, and the weight decay for each nat more."""
WHOLE, POSITIVE = ("epochs", "batch_size"), ("learning_rate", "max_gradient")
COMPARED = 500
"""Rows of each member that are compared."""


@dataclass(frozen=True, kw_only=True)
class OneCycle:
    """Settings of a one-cycle training.

    Attributes:
        epochs: Passes over the rows, unless the members would learn their rows by heart.
        batch_size: Rows per step and member, at most; few rows have smaller batches.
        learning_rate: The highest learning rate.
        weight_decay: AdamW's decay.
        max_gradient: Norm of the gradient of a member above which it is scaled down.
    """

    epochs: int = 60
    batch_size: int = 256
    learning_rate: float = 0.02
    weight_decay: float = 0.0
    max_gradient: float = 5.0

    def __post_init__(self) -> None:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        whole = {
            name: ("a whole number, 1 or more", is_whole(given[name]) and given[name] >= 1) for name in WHOLE
        }
        positive = {name: ("a number above 0", to_float(given[name]) > 0) for name in POSITIVE}
        decay = {"weight_decay": ("a number, 0 or more", to_float(self.weight_decay) >= 0)}
        raise_unless(whole | positive | decay, given)

    @property
    def all_epochs(self) -> int:
        """The epochs of both trainings: the short one that comes first, and the whole one."""
        return self.epochs if self.epochs <= SHORT else self.epochs + self.short_epochs

    @property
    def short_epochs(self) -> int:
        """The epochs of the training that comes first: a quarter, at most ten; few epochs are all of it."""
        return self.epochs if self.epochs <= SHORT else min(SHORT, -(-self.epochs // 4))

    def limited(self, training: Training) -> OneCycle:
        """Return the settings with the limits and the decay of a density's own training settings."""
        return replace(
            self,
            epochs=min(self.epochs, training.epochs),
            batch_size=min(self.batch_size, training.batch_size),
            weight_decay=training.weight_decay,
            max_gradient=training.max_gradient,
        )


class Stack(Protocol):
    """Networks of several members with stacked parameters, whose first dimension are the members."""

    n_modelled: int  # number of features whose density is learned

    def parameters(self) -> list[Tensor]:
        """Return the parameters."""
        ...

    def split_columns(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is modelled of rows, ``(n, m)``, and their context with the class, ``(n, c)``."""
        ...

    def log_prob(self, x: Tensor, context: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the log-densities of each member's rows, ``(M, b, m), (M, b, c) -> (M, b)``.

        With a generator it is that of training, with dropout.
        """
        ...

    def write_back(self) -> None:
        """Copy the parameters to the networks of the members."""
        ...


Rows = tuple[Tensor, Tensor, Tensor | None]
"""What is modelled of rows, their context, and the standard deviations of the noise of what is modelled."""


def train_stack(
    stack: Stack,
    x: Tensor,
    y: Tensor,
    used: Tensor,
    settings: OneCycle,
    noise: Tensor | None,
    *,
    random_state: int,
    label: str,
) -> None:
    """Minimise the negative log-likelihood of all members, and write the weights back.

    A short training comes first. If the members know their own rows better than others after it, they would
    learn them by heart: the weights decay, the more the larger the difference, and the training is shorter.
    If it still makes other rows less likely than the short one, the short one counts.

    Args:
        stack: The networks.
        x: Rows, shape ``(n, d)``.
        y: Their classes, shape ``(n,)``.
        used: Training rows of each member, booleans of shape ``(M, n)``.
        settings: Training settings.
        noise: Standard deviations of the noise of what is modelled of the rows, shape ``(n, m)``, or None.
        random_state: Seed of the order of the rows, the noise and dropout.
        label: Label of the progress bar.
    """
    rows = [own.nonzero()[:, 0] for own in used]
    smallest = max(SMALLEST_BATCH, min(map(len, rows)) // BATCHES)
    settings = replace(settings, batch_size=min(settings.batch_size, smallest))
    short = settings.short_epochs
    with progress_bar(label, settings.all_epochs) as advance:
        split = stack.split_columns(x, y)
        run = partial(_one_cycle, stack, (*split, noise), rows, random_state=random_state, label=label)
        run = partial(run, advance=lambda: advance(1, ""))
        initial = _copies(stack)
        run(settings=replace(settings, epochs=short))
        if settings.epochs > short:
            first, (own, others) = _copies(stack), _medians(stack, split, used)
            gap = (own - others) / stack.n_modelled - SMALL_GAP
            if gap > 0:
                decay = max(settings.weight_decay, DECAY_PER_GAP * gap)
                settings = replace(settings, epochs=settings.epochs // 2, weight_decay=decay)
            _restore(stack, initial)
            run(settings=settings)
            if _medians(stack, split, used)[1] < others:
                _restore(stack, first)
    stack.write_back()


def _copies(stack: Stack) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in stack.parameters()]


@torch.no_grad()
def _restore(stack: Stack, values: Sequence[Tensor]) -> None:
    for parameter, value in zip(stack.parameters(), values, strict=True):
        parameter.copy_(value)


def _one_cycle(
    stack: Stack,
    given: Rows,
    rows: Sequence[Tensor],
    *,
    settings: OneCycle,
    random_state: int,
    label: str,
    advance: Callable[[], None],
) -> None:
    x, context, noise = given
    generator = torch.Generator(device=x.device).manual_seed(random_state)
    parameters = [parameter.requires_grad_() for parameter in stack.parameters()]
    optimizer = Adam(parameters, BETAS, settings.weight_decay)
    least = min(map(len, rows))
    per_epoch = -(-least // settings.batch_size)
    rate = iter(learning_rates(settings.learning_rate, settings.epochs * per_epoch))
    with torch.enable_grad():
        for _ in range(settings.epochs):
            orders = [torch.randperm(len(own), generator=generator, device=x.device)[:least] for own in rows]
            order = torch.stack([own[places] for own, places in zip(rows, orders, strict=True)])
            for batch in order.split(settings.batch_size, dim=1):
                inputs = x[batch]
                if noise is not None:
                    draws = torch.randn(inputs.shape, generator=generator, device=x.device, dtype=x.dtype)
                    inputs = torch.addcmul(inputs, noise[batch], draws)
                log_prob = stack.log_prob(inputs, context[batch], generator)
                loss = negative_log_likelihood(log_prob).mean(dim=1)
                for parameter in parameters:
                    parameter.grad = None
                loss.sum().backward()
                _limit_gradients(parameters, settings.max_gradient)
                optimizer.step([parameter.grad for parameter in parameters], next(rate))
            advance()
    if not bool(loss.isfinite().all()):
        raise TrainingError(
            f"{label}: the loss is not a number. Look for extreme values in the data (scale columns to about "
            "[0, 1]) or lower the learning rate."
        )


@torch.no_grad()
def _medians(stack: Stack, split: tuple[Tensor, Tensor], used: Tensor) -> tuple[float, float]:
    """Return the median log-densities of the members' own rows and of others; equal if there are none."""
    medians, (x, context) = [], split
    for mask in (used, ~used):
        count = min(COMPARED, int(mask.sum(dim=1).min()))
        if count == 0:
            return 0.0, 0.0
        some = torch.stack([_spread(own.nonzero()[:, 0], count) for own in mask])
        medians.append(float(stack.log_prob(x[some], context[some], None).median(dim=1).values.mean()))
    return medians[0], medians[1]


def _spread(rows: Tensor, count: int) -> Tensor:
    """Return ``count`` of some rows, evenly spread."""
    return rows[torch.arange(count, device=rows.device) * len(rows) // count]


@torch.no_grad()
def _limit_gradients(parameters: Sequence[Tensor], most: float) -> None:
    """Scale the gradients of each member to a norm of at most ``most``; those that are not finite to zero."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([gradient.flatten(1).square().sum(dim=1) for gradient in gradients]).sum(dim=0).sqrt()
    factor = torch.where(norm.isfinite(), (most / norm).clamp_max(1.0), 0.0)
    broken = not bool(norm.isfinite().all())
    for gradient in gradients:
        if broken:
            gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
