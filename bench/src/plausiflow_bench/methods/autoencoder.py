"""A small autoencoder, whose reconstruction error is large for rows unlike the training rows.

CEM and CEGP can add the reconstruction error to their objective. CEGP can measure the distance to a prototype
between codes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from torch import Tensor, nn

from plausiflow.core import Frozen, Training, check_rows, local_seed, train
from plausiflow.errors import NotFittedError, ShapeError
from plausiflow.validation import is_whole, raise_unless


class _Layers(nn.Module):
    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder = _perceptron(sizes)
        self.decoder = _perceptron(sizes[::-1])


@dataclass(kw_only=True, eq=False)
class Autoencoder:
    """A perceptron that narrows to a code and widens again, trained to reproduce its input.

    Attributes:
        hidden: Sizes from the first hidden layer to the code; None is half and a quarter of the features,
            rounded up.
        training: Settings of the training.
        random_state: Seed of all randomness of ``fit``.

    Example:
        >>> import torch
        >>> x = torch.rand(100, 4)
        >>> autoencoder = Autoencoder(training=Training(epochs=2)).fit(x)
        >>> autoencoder.encode(x).shape, autoencoder.error(x).shape
        (torch.Size([100, 1]), torch.Size([100]))
    """

    hidden: tuple[int, ...] | None = None
    training: Training = field(
        default_factory=lambda: Training(learning_rate=1e-3, batch_size=64, tolerance=1e-6), repr=False
    )
    random_state: int = 0
    n_features_: int = field(init=False, default=0, repr=False)
    _frozen: Frozen[_Layers] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        valid = self.hidden is None or (
            len(self.hidden) > 0 and all(is_whole(size) and size >= 1 for size in self.hidden)
        )
        raise_unless({"hidden": ("whole numbers of at least 1", valid)}, vars(self))

    def fit(self, x: Tensor) -> Self:
        """Train on rows ``(n, d)``, in their precision and on their device, by squared error."""
        classes = x.new_zeros(len(x)).long()
        check_rows(x, classes)
        d = x.shape[1]
        hidden = self.hidden if self.hidden is not None else (math.ceil(d / 2), math.ceil(d / 4))
        with local_seed(self.random_state, x.device):
            layers = _Layers((d, *hidden)).to(x)

        def loss(rows: Tensor, _: Tensor) -> Tensor:
            rebuilt: Tensor = layers.decoder(layers.encoder(rows))
            return (rebuilt - rows).square().sum(dim=1)

        train(
            layers,
            loss,
            x,
            classes,
            settings=self.training,
            random_state=self.random_state,
            label="Autoencoder",
        )
        layers.zero_grad(set_to_none=True)
        self.n_features_, self._frozen = d, Frozen(layers)
        return self

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes, ``(n, d) -> (n, m)``; keeps the graph."""
        code: Tensor = self._layers(x).encoder(x)
        return code

    def reconstruct(self, x: Tensor) -> Tensor:
        """Encode and decode rows, ``(n, d) -> (n, d)``; keeps the graph."""
        rebuilt: Tensor = self._layers(x).decoder(self.encode(x))
        return rebuilt

    def error(self, x: Tensor) -> Tensor:
        """Return the squared distance to the reconstruction, ``(n, d) -> (n,)``; keeps the graph."""
        return (x - self.reconstruct(x)).square().sum(dim=1)

    def _layers(self, x: Tensor) -> _Layers:
        if self._frozen is None:
            raise NotFittedError("This autoencoder is not trained. Call `fit(x)` with training rows first.")
        if x.ndim != 2 or x.shape[1] != self.n_features_:
            raise ShapeError(
                f"`x` must have shape (n, {self.n_features_}), as when this autoencoder was fitted; got "
                f"{tuple(x.shape)}. Give it rows with the columns of the training data."
            )
        return self._frozen(x)


def _perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    """Return linear layers with tanh between them, which is smooth for gradient-based searches."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers[:-1])
