"""Methods of other papers to compare with: CEM, CEGP, CBCE, ARTELT, Diffeomorphic, CeFlow, LiCE."""

from plausiflow.methods import METHODS as PLAUSIFLOW_METHODS
from plausiflow.methods import Method
from plausiflow_bench.methods.artelt import Artelt
from plausiflow_bench.methods.cbce import CBCE
from plausiflow_bench.methods.cegp import CEGP
from plausiflow_bench.methods.cem import CEM
from plausiflow_bench.methods.latent import CeFlow, Diffeomorphic
from plausiflow_bench.methods.likely_milp import LikelyMilp

METHODS: dict[str, type[Method]] = PLAUSIFLOW_METHODS | {
    "cem": CEM,
    "cegp": CEGP,
    "cbce": CBCE,
    "artelt": Artelt,
    "diffeomorphic": Diffeomorphic,
    "ceflow": CeFlow,
}
"""Every method by the name that studies and the command line use."""

__all__ = ["CBCE", "CEGP", "CEM", "METHODS", "Artelt", "CeFlow", "Diffeomorphic", "LikelyMilp"]
