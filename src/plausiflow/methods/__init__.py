"""Ways to find counterfactuals, all with the same ``explain``."""

from plausiflow.methods.artelt import Artelt
from plausiflow.methods.base import Method, Policy, Target
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.cbce import CBCE
from plausiflow.methods.cegp import CEGP
from plausiflow.methods.cem import CEM
from plausiflow.methods.dice import DiCE
from plausiflow.methods.face import FACE
from plausiflow.methods.latent import CeFlow, Diffeomorphic
from plausiflow.methods.nearest import Nearest, NearestDense
from plausiflow.methods.ppcef import PPCEF
from plausiflow.methods.wachter import Wachter

METHODS: dict[str, type[Method]] = {
    "ppcef": PPCEF,
    "wach": Wachter,
    "cem": CEM,
    "cegp": CEGP,
    "cbce": CBCE,
    "artelt": Artelt,
    "nnce": Nearest,
    "nnce_dense": NearestDense,
    "face": FACE,
    "dice": DiCE,
    "diffeomorphic": Diffeomorphic,
    "ceflow": CeFlow,
}
"""Every method by the name that studies and the command line use."""

__all__ = [
    "CBCE",
    "CEGP",
    "CEM",
    "FACE",
    "METHODS",
    "PPCEF",
    "Artelt",
    "BoxedMethod",
    "CeFlow",
    "DiCE",
    "Diffeomorphic",
    "Method",
    "Nearest",
    "NearestDense",
    "Policy",
    "Target",
    "Wachter",
]
