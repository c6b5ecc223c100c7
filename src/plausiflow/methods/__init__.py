"""Ways to find counterfactuals, all with the same ``explain``."""

from plausiflow.methods.base import Method
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.ppcef import PPCEF
from plausiflow.methods.reference.artelt import Artelt
from plausiflow.methods.reference.cbce import CBCE
from plausiflow.methods.reference.cegp import CEGP
from plausiflow.methods.reference.cem import CEM
from plausiflow.methods.reference.dice import DiCE
from plausiflow.methods.reference.face import FACE
from plausiflow.methods.reference.latent import CeFlow, Diffeomorphic
from plausiflow.methods.reference.nearest import Nearest, NearestDense
from plausiflow.methods.reference.wachter import Wachter

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
    "Wachter",
]
