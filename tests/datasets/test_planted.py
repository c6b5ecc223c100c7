"""Generated tables with planted truths: each truth holds, and rows that break it can be made."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.datasets import break_truth, contacts, contacts_table, load_table, orders, orders_table
from plausiflow.errors import InvalidInputError

MODULES = [contacts, orders]
RELATIONS = ("equivalence", "implication", "never", "order", "sum", "hierarchy")
TRUTHS = [pytest.param(module, truth, id=truth.description) for module in MODULES for truth in module.TRUTHS]


@pytest.fixture(scope="module")
def drawn():
    return {module: module.draw(n=4000, seed=1) for module in MODULES}


@pytest.mark.parametrize(("module", "truth"), TRUTHS)
def test_every_truth_holds_but_for_its_stated_exceptions(drawn, module, truth):
    x, _ = drawn[module]
    share = 1 - truth.holds(x).mean()
    assert share <= 2 * truth.exceptions
    assert truth.exceptions == 0 or share > 0


@pytest.mark.parametrize(("module", "truth"), [p for p in TRUTHS if p.values[1].kind in RELATIONS])
def test_broken_rows_break_it_and_every_cell_alone_is_real(drawn, module, truth):
    x, _ = drawn[module]
    before, broken = break_truth(truth, x, n=50)
    assert len(before) == len(broken) == 50
    assert truth.holds(before).all()
    assert ((before != broken).sum(axis=1) == 1).all()
    assert not truth.holds(broken).any()
    for name in x.columns:
        assert broken[name].isin(x[name]).all()
    assert broken.dtypes.equals(x.dtypes)


@pytest.mark.parametrize("module", MODULES)
def test_a_special_value_is_an_atom_away_from_the_others(drawn, module):
    x, _ = drawn[module]
    for truth in module.TRUTHS:
        if truth.kind == "special":
            values = x[truth.columns[0]]
            assert (values == truth.values[0]).mean() > 0.1


@pytest.mark.parametrize("module", MODULES)
def test_logic_is_not_true_by_chance(drawn, module):
    """Columns shuffled independently break every truth about several columns."""
    x, _ = drawn[module]
    generator = np.random.default_rng(0)
    shuffled = pd.DataFrame({name: x[name].to_numpy()[generator.permutation(len(x))] for name in x})
    for truth in module.TRUTHS:
        if truth.kind in RELATIONS:
            assert (~truth.holds(shuffled)).sum() >= 20, truth.description


@pytest.mark.parametrize("module", MODULES)
def test_the_same_seed_gives_the_same_rows(module):
    pd.testing.assert_frame_equal(module.draw(n=60, seed=4)[0], module.draw(n=60, seed=4)[0])
    assert not module.draw(n=60, seed=5)[0].equals(module.draw(n=60, seed=4)[0])


@pytest.mark.parametrize("module", MODULES)
def test_no_rows_are_refused(module):
    with pytest.raises(InvalidInputError, match="`n` must be at least 1; got 0"):
        module.draw(n=0)


@pytest.mark.parametrize(("name", "make"), [("contacts", contacts_table), ("orders", orders_table)])
def test_tables_carry_their_truths_and_rules(name, make):
    table = load_table(name)
    assert table.truths == make().truths
    assert len(table.truths) >= 10
    train, test = table.study_split()
    assert (len(train.x), len(test.x)) == (4000, 500)
    assert train.truths == table.truths
    assert set(table.immutable) <= set(table.x.columns)
