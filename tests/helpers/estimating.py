"""What the tests of densities share: rows of some classes, densities fitted on them, gradients."""

from functools import cache

import torch

from plausiflow.core.training import Training
from plausiflow.densities import GMM, KDE, ConditionalFlow
from plausiflow.densities.flows import ARCHITECTURES

SHORT = Training(epochs=12, batch_size=64, learning_rate=5e-3, noise=0.02)
BRIEF = Training(epochs=2, learning_rate=5e-3, noise=0.02)


def flow(architecture, training=SHORT, **settings):
    return ConditionalFlow(architecture=architecture, hidden=(16, 16), training=training, **settings)


MAKERS = {name: lambda name=name: flow(name) for name in ARCHITECTURES} | {
    "kde": KDE,
    "gmm": lambda: GMM(components=2),
}


def rows(d, n=240, classes=3, precision=torch.float64):
    """Classes of different centre and width, about in [0, 1]."""
    generator = torch.Generator().manual_seed(11)
    y = torch.arange(n) % classes
    centre, width = 0.3 + 0.2 * y, 0.06 + 0.03 * y
    x = centre[:, None] + width[:, None] * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x.to(precision), y


@cache
def fitted_on(name, d, classes=3):
    return MAKERS[name]().fit(*rows(d, classes=classes))


def score_and_gradient(density, x, y):
    x = x.clone().requires_grad_()
    log_prob = density.log_prob(x, y)
    (gradient,) = torch.autograd.grad(log_prob.sum(), x)
    return log_prob.detach(), gradient


def awkward(n=200):
    """Two levels, three rare levels, a constant, a number, and that number again."""
    generator = torch.Generator().manual_seed(2)
    number = torch.rand(n, generator=generator, dtype=torch.float64)
    y = (number > 0.5).long()
    levels = torch.multinomial(torch.tensor([0.9, 0.07, 0.03]), n, replacement=True, generator=generator) / 2
    return torch.stack(
        [(number > 0.3).double(), levels.double(), torch.full_like(number, 0.25), number, number], dim=1
    ), y
