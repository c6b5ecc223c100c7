"""One picture for each method, all of the same row, the same model and the same density."""

import torch
from method_models import draw, draw_way, fitted, latent_flow, moons

from plausiflow.methods import (CBCE, CEGP, CEM, FACE, PPCEF, Artelt, CeFlow, DiCE, Diffeomorphic, Nearest, NearestDense, Wachter)
from plausiflow.solvers import SQP


def models() -> dict[str, object]:
    """What every method gets."""
    return {"classifier": moons().classifier, "plausibility": moons().plausibility}


def ppcef() -> None:
    """With the points that the solver went through."""
    draw(fitted(PPCEF(**models(), solver=SQP(trace=True), lower=0.0, upper=1.0)))


def wach() -> None:
    """One feature is enough for L1."""
    draw(fitted(Wachter(**models())))


def cem() -> None:
    """The elastic net."""
    draw(fitted(CEM(**models())))


def cegp() -> None:
    """With the prototype, the nearest row of the wanted class."""
    axes, setting = draw(fitted(CEGP(**models()))), moons()
    prototype = Nearest(classifier=setting.classifier).fit(setting.fold.x_train, setting.fold.y_train)
    place = prototype.explain(setting.x).x_cf[0].tolist()
    axes.scatter(*place, s=60, facecolors="none", edgecolors="black", zorder=5)
    axes.annotate("prototype", place, (6, -12), textcoords="offset points", fontsize=8)


def cbce() -> None:
    """The row, with what differs in the nearest explanation case."""
    draw(fitted(CBCE(**models())))


def artelt() -> None:
    """Inside one ellipsoid of a Gaussian mixture."""
    draw(fitted(Artelt(**models(), lower=0.0, upper=1.0)))


def nnce() -> None:
    """A training row."""
    draw(fitted(Nearest(**models())))


def nnce_dense() -> None:
    """A dense training row."""
    draw(fitted(NearestDense(**models())))


def face() -> None:
    """With the path, row by row."""
    setting, method = moons(), fitted(FACE(**models()))
    axes = draw(method)
    wanted = 1 - setting.classifier.logits(setting.x).argmax(dim=1)
    draw_way(axes, torch.cat([setting.x.double(), method.paths(setting.x, wanted)[0].double()]))


def dice() -> None:
    """With the other three answers."""
    setting, method = moons(), fitted(DiCE(**models()))
    axes = draw(method)
    wanted = 1 - setting.classifier.logits(setting.x).argmax(dim=1)
    others = method.explain_many(setting.x, wanted)[0]
    axes.scatter(others[:, 0], others[:, 1], s=36, facecolors="none", edgecolors="#dc2626", zorder=4)


def diffeomorphic() -> None:
    """Downhill in the latent space."""
    draw(fitted(Diffeomorphic(**models(), flow=latent_flow())))


def ceflow() -> None:
    """With the curve that the straight move in the latent space is here."""
    setting, flow = moons(), latent_flow()
    method = fitted(CeFlow(**models(), flow=flow, grid=40, furthest=2.0))
    axes, own = draw(method), setting.classifier.logits(setting.x).argmax(dim=1)
    means, alphas = method.means_[0], torch.linspace(0, 2, 41, dtype=torch.float64)[:, None]
    with torch.no_grad():
        start = flow.to_latent(setting.x.double(), torch.zeros_like(own))
        latents = start + alphas * (means[1 - own] - means[own])
        draw_way(axes, flow.from_latent(latents, torch.zeros(len(latents), dtype=torch.long)))
