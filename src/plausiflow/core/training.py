"""One early-stopping loop for classifiers and densities.

A part of the *training* rows is held back; training stops when the loss on it has not improved for
``patience`` epochs at each of a few falling learning rates, and the best weights are kept. All randomness
comes from one seed, so the same seed on the same machine gives the same weights, and no global generator is
touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plausiflow.errors import InvalidInputError, ShapeError, TrainingError
from plausiflow.progress import progress_bar

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""``(x, y) -> (n,)``, keeps the graph to the parameters."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training settings.

    Attributes:
        epochs: Maximum number of passes over the data.
        batch_size: Rows per step.
        learning_rate: Adam's first learning rate.
        weight_decay: AdamW's decay.
        patience: Epochs without progress before the learning rate falls, and in the end before training
            stops.
        reductions: How often the learning rate falls (to 30 %), each time from the best weights so far.
        validation: Share of the rows held back for early stopping.
        noise: Standard deviation of the Gaussian noise added to each batch of inputs; one for all columns,
            or one for each.
        max_gradient: Gradient norm above which a step is scaled down.
        tolerance: Smallest fall of the held-out loss that counts as progress.
    """

    epochs: int = 400
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int = 20
    reductions: int = 1
    validation: float = 0.15
    noise: float | tuple[float, ...] = 0.0
    max_gradient: float = 5.0
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        least = dict.fromkeys(("epochs", "batch_size"), 1)
        least |= dict.fromkeys(
            ("learning_rate", "weight_decay", "patience", "reductions", "noise", "tolerance"), 0
        )
        settings = {name: getattr(self, name) for name in least}
        if isinstance(self.noise, tuple):
            settings["noise"] = next((noise for noise in self.noise if not noise >= 0), 0.0)
        problems = [
            f"`{name}` must be at least {least[name]}; got {value}"
            for name, value in settings.items()
            if not value >= least[name]
        ]
        if not 0 <= self.validation < 1:
            problems.append(f"`validation` must be a share in [0, 1); got {self.validation}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")


def check_rows(x: Tensor, y: Tensor, *, n_classes: int | None = None) -> None:
    """Raise unless ``x`` is a finite float table and ``y`` its classes; the error names every problem."""
    problems = []
    if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        problems.append(
            f"`x` must have shape (n, d) with at least one row and one column; got {tuple(x.shape)}"
        )
    if not x.is_floating_point():
        problems.append(f"`x` must be a float tensor; got {x.dtype}")
    elif not torch.isfinite(x).all():
        bad = (~torch.isfinite(x)).nonzero()
        where = f" (first at row {int(bad[0, 0])}, column {int(bad[0, -1])})" if x.ndim == 2 else ""
        problems.append(f"`x` must be finite; {len(bad)} entries are NaN or infinite{where}")
    if y.shape != x.shape[:1]:
        problems.append(
            f"`y` must have shape ({x.shape[0] if x.ndim else 0},), one class per row; got {tuple(y.shape)}"
        )
    if y.dtype != torch.long:
        problems.append(f"`y` must be a long tensor of class numbers; got {y.dtype}")
    elif y.numel() and int(y.min()) < 0:
        problems.append(f"`y` must number classes from 0; got {int(y.min())}")
    elif n_classes is not None and y.numel() and int(y.max()) >= n_classes:
        problems.append(f"`y` must be below {n_classes}, the number of classes; got {int(y.max())}")
    if problems:
        shapes = any("shape" in problem for problem in problems)
        remedy = "Encode the table first, drop or fill missing values, and number the classes 0, 1, 2, …"
        raise (ShapeError if shapes else InvalidInputError)("; ".join(problems) + ". " + remedy)


def check_query(x: Tensor, y: Tensor, n_features: int, n_classes: int | None = None) -> None:
    """Raise unless ``x`` has the columns of the fit, and ``y`` one class for each row."""
    if x.ndim != 2 or x.shape[1] != n_features:
        raise ShapeError(
            f"`x` must have shape (n, {n_features}), as when this density was fitted; got {tuple(x.shape)}. "
            "Give it rows with the same columns, in the same order, as the training data."
        )
    if y.shape != x.shape[:1]:
        raise ShapeError(f"`y` must have shape ({len(x)},), one class per row; got {tuple(y.shape)}.")
    check_classes(y, n_classes)


def check_classes(y: Tensor, n_classes: int | None) -> None:
    """Raise unless ``y`` holds class numbers, below ``n_classes`` if that is given."""
    if y.dtype != torch.long:
        raise InvalidInputError(
            f"`y` must be a long tensor of class numbers; got {y.dtype}. Convert it with `.long()`."
        )
    if y.numel() and (int(y.min()) < 0 or (n_classes is not None and int(y.max()) >= n_classes)):
        allowed = (
            "0 or more"
            if n_classes is None
            else f"between 0 and {n_classes - 1}, the classes this was fitted on"
        )
        raise InvalidInputError(f"`y` must be {allowed}; got {int(y.min())} to {int(y.max())}.")


def train(
    module: nn.Module,
    loss: RowLoss,
    x: Tensor,
    y: Tensor,
    *,
    settings: Training,
    random_state: int,
    label: str,
    prepare: Callable[[Tensor, Tensor], None] | None = None,
) -> None:
    """Fit ``module`` in place; it ends in evaluation mode with the best weights seen.

    Args:
        module: The module to train.
        loss: Loss per row, ``(x, y) -> (n,)``.
        x: Training rows, shape ``(n, d)``.
        y: Their classes, shape ``(n,)``.
        settings: Training settings.
        random_state: Seed of the split, the order of the rows, the noise and dropout.
        label: Label of the progress bar.
        prepare: Called once with the rows that are trained on, for statistics of the data.
    """
    if isinstance(settings.noise, tuple) and len(settings.noise) != x.shape[1]:
        raise InvalidInputError(
            f"`noise` must be one number, or one for each of the {x.shape[1]} columns; got "
            f"{len(settings.noise)}."
        )
    generator = torch.Generator(device=x.device).manual_seed(random_state)
    held_out, kept = split_rows(y, settings.validation, generator)
    if prepare is not None:
        prepare(x[kept], y[kept])
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    best, best_state, bad, reductions = math.inf, None, 0, 0
    with (
        torch.enable_grad(),
        local_seed(random_state, x.device),
        progress_bar(label, settings.epochs) as advance,
    ):
        for _ in range(settings.epochs):
            module.train()
            _one_epoch(module, loss, x[kept], y[kept], optimizer, settings, generator)
            module.eval()
            with torch.no_grad():
                value = float(loss(x[held_out], y[held_out]).mean())
            advance(1, f"held-out loss {value:.3f}")
            if value < best - settings.tolerance:
                best, bad = value, 0
                best_state = {k: v.detach().clone() for k, v in module.state_dict().items()}
                continue
            bad += 1
            if bad < settings.patience:
                continue
            if reductions == settings.reductions or best_state is None:
                break
            reductions, bad = reductions + 1, 0
            module.load_state_dict(best_state)
            for group in optimizer.param_groups:
                group["lr"] *= 0.3
    if best_state is None:
        raise TrainingError(
            f"{label}: the loss was not a number in every epoch. Look for extreme values in the data (scale "
            "columns to about [0, 1]) or lower `learning_rate`."
        )
    module.load_state_dict(best_state)
    module.eval()


def _one_epoch(
    module: nn.Module,
    loss: RowLoss,
    x: Tensor,
    y: Tensor,
    optimizer: torch.optim.Optimizer,
    settings: Training,
    generator: torch.Generator,
) -> None:
    order = torch.randperm(len(x), generator=generator, device=x.device)
    for batch in order.split(settings.batch_size):
        inputs = x[batch]
        if settings.noise != 0:
            noise = torch.randn(inputs.shape, generator=generator, device=x.device, dtype=x.dtype)
            inputs = inputs + torch.tensor(settings.noise).to(x) * noise
        value = loss(inputs, y[batch]).mean()
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), settings.max_gradient)
        if torch.isfinite(norm):
            optimizer.step()


def split_rows(y: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random rows held out and rows kept; with fewer than ten rows all rows for both."""
    order = torch.randperm(len(y), generator=generator, device=y.device)
    held_out = round(share * len(y))
    if len(y) < 10 or held_out == 0:
        return order, order
    return order[:held_out], order[held_out:]


@contextmanager
def local_seed(random_state: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generator inside the block only (dropout has no generator of its own)."""
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        # Not torch.manual_seed: it would also reseed every CUDA device, and leave it so.
        torch.default_generator.manual_seed(random_state)
        if on_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(random_state)
        yield
