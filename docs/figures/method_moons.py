"""One figure for each method, with the same row, model and density."""

import torch
from method_models import draw, draw_path, fitted, latent_flow, moons

from plausiflow.methods import FACE, PPCEF, DiCE, Nearest, NearestDense, Wachter
from plausiflow.solvers import SQP
from plausiflow_bench.methods import CBCE, CEGP, CEM, Artelt, CeFlow, Diffeomorphic


def models() -> dict[str, object]:
    """Return the arguments that every method gets."""
    return {"classifier": moons().classifier, "plausibility": moons().plausibility}


def ppcef() -> None:
    """Draw PPCEF with the iterates of the solver."""
    draw(fitted(PPCEF(**models(), solver=SQP(trace=True), lower=0.0, upper=1.0)))


def wach() -> None:
    """Draw WACH, which changes one feature."""
    draw(fitted(Wachter(**models())))


def cem() -> None:
    """Draw CEM."""
    draw(fitted(CEM(**models())))


def cegp() -> None:
    """Draw CEGP with the prototype, the nearest row of the target class."""
    axes, setting = draw(fitted(CEGP(**models()))), moons()
    prototype = Nearest(classifier=setting.classifier).fit(setting.fold.x_train, setting.fold.y_train)
    place = prototype.explain(setting.x).x_cf[0].tolist()
    axes.scatter(*place, s=60, facecolors="none", edgecolors="black", zorder=5)
    axes.annotate("prototype", place, (6, -12), textcoords="offset points", fontsize=8)


def cbce() -> None:
    """Draw CBCE."""
    draw(fitted(CBCE(**models())))


def artelt() -> None:
    """Draw ARTELT."""
    draw(fitted(Artelt(**models(), lower=0.0, upper=1.0)))


def nnce() -> None:
    """Draw the nearest training row."""
    draw(fitted(Nearest(**models())))


def nnce_dense() -> None:
    """Draw the nearest plausible training row."""
    draw(fitted(NearestDense(**models())))


def face() -> None:
    """Draw FACE with its path."""
    setting, method = moons(), fitted(FACE(**models()))
    axes = draw(method)
    target = 1 - setting.classifier.logits(setting.x).argmax(dim=1)
    draw_path(axes, torch.cat([setting.x.double(), method.paths(setting.x, target)[0].double()]))


def dice() -> None:
    """Draw DiCE with the other three answers."""
    setting, method = moons(), fitted(DiCE(**models()))
    axes = draw(method)
    target = 1 - setting.classifier.logits(setting.x).argmax(dim=1)
    others = method.explain_many(setting.x, target)[0]
    axes.scatter(others[:, 0], others[:, 1], s=36, facecolors="none", edgecolors="#dc2626", zorder=4)


def diffeomorphic() -> None:
    """Draw Diffeomorphic."""
    draw(fitted(Diffeomorphic(**models(), flow=latent_flow())))


def ceflow() -> None:
    """Draw CeFlow with the curve of the straight line in the latent space."""
    setting, flow = moons(), latent_flow()
    method = fitted(CeFlow(**models(), flow=flow, grid=40, furthest=2.0))
    axes, own = draw(method), setting.classifier.logits(setting.x).argmax(dim=1)
    means, alphas = method.means_[0], torch.linspace(0, 2, 41, dtype=torch.float64)[:, None]
    with torch.no_grad():
        start = flow.to_latent(setting.x.double(), torch.zeros_like(own))
        latents = start + alphas * (means[1 - own] - means[own])
        draw_path(axes, flow.from_latent(latents, torch.zeros(len(latents), dtype=torch.long)))
