"""What the tests of the cross-fitted ensemble share: flows that learn quickly, ensembles fitted once."""

import copy
from dataclasses import replace
from functools import cache

from estimating import SHORT, rows
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble

BASE = ConditionalFlow(transforms=3, hidden=(16, 16), training=SHORT)
BRIEF = replace(BASE, transforms=2, hidden=(8,), training=replace(SHORT, epochs=1))


def ensemble_like(architecture="maf", **settings):
    return CrossFitEnsemble(**{"members": 3, "base": replace(BASE, architecture=architecture)} | settings)


@cache
def fitted_on(d, architecture="maf", classes=3):
    training = SHORT if architecture == "maf" else replace(SHORT, epochs=2)
    base = replace(BASE, architecture=architecture, training=training)
    return CrossFitEnsemble(members=3, base=base).fit(*rows(d, classes=classes))


def changed(ensemble, **attributes):
    """A copy with other settings or learned values."""
    other = copy.deepcopy(ensemble)
    for name, value in attributes.items():
        setattr(other, name, value)
    return other
