"""plausiflow and PPCEF as methods of RecourseBench (github.com/charmlab/recourse_bench)."""

from plausiflow_bench.recoursebench.encoded_groups import EncodedGroups
from plausiflow_bench.recoursebench.methods import make_methods, register_methods

__all__ = ["EncodedGroups", "make_methods", "register_methods"]
