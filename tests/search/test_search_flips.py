"""A beam of flips: every setting of categories that is allowed, the best ones first."""

import itertools

import numpy as np
import pytest
import torch

from plausiflow.constraints import Immutable, Increasing
from plausiflow.search.beam import VIOLATION, Beam, Moves
from searching import applicants, setup


def categories(n=200, **settings):
    draw = np.random.default_rng(4)
    frame = applicants(n)[["job", "school", "owns"]].assign(shirt=draw.choice(["red", "blue", "green"], n))
    return setup(frame, bar=0.2, **settings)


WIDE = {"width": 10**6, "evaluated": 10**6, "kept": 10**6}


def beam(task, rows, typical, **settings):
    nothing = task.candidates(rows[:0], task.x[:0])
    return Beam(**settings).run(task, rows, Moves.of(task, rows, nothing, typical))


def merit(task, x_cf, rows):
    return task.costs(x_cf, rows) + VIOLATION * (-task.constraint_values(x_cf, rows)).clamp_min(0).sum(dim=1)


def all_settings(task, i, most):
    """Every allowed setting of categories that differs from row ``i`` in one to ``most`` of them."""
    blocks, own = task.layout.with_levels, task.layout.codes(task.x[i : i + 1])[0].tolist()
    choices = []
    for block, code in zip(blocks, own, strict=True):
        allowed = task.allowance.levels[i, list(block.levels)].tolist()
        choices.append([c for c in range(len(block.levels)) if allowed[c] or c == code])
    for codes in itertools.product(*choices):
        if 0 < sum(a != b for a, b in zip(codes, own, strict=True)) <= most:
            yield codes


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("rules", [(), [Immutable("owns"), Increasing("school")]], ids=["free", "rules"])
def test_a_beam_that_forgets_nothing_reaches_every_allowed_setting_once(depth, rules):
    made = categories(constraints=rules)
    task = made.task(made.x[:6])
    found = beam(task, torch.arange(6), {}, **WIDE | {"depth": depth})
    for i in range(6):
        own = task.layout.codes(found.x[found.rows == i]).tolist()
        assert sorted(map(tuple, own)) == sorted(all_settings(task, i, depth))


def test_the_best_setting_of_all_is_in_a_wide_beam_and_a_narrow_one_has_the_best_flip():
    made = categories()
    task = made.task(made.x[:10])
    found = beam(task, torch.arange(10), {}, **WIDE)
    for i in range(10):
        settings = torch.tensor(list(all_settings(task, i, 4)))
        every = task.layout.with_codes(task.x[i : i + 1].repeat(len(settings), 1), settings)
        best = merit(task, every, torch.full((len(every),), i)).min()
        own = found[found.rows == i]
        assert merit(task, own.x, own.rows).min() == best


def test_a_narrow_beam_keeps_the_best_few_of_each_depth():
    made = categories()
    task = made.task(made.x[:10])
    found = beam(task, torch.arange(10), {}, kept=5, width=5)
    changes = task.layout.changed(found.x, task.x[found.rows]).sum(dim=1)
    for i in range(10):
        settings = torch.tensor(list(all_settings(task, i, 1)))
        every = task.layout.with_codes(task.x[i : i + 1].repeat(len(settings), 1), settings)
        expected = merit(task, every, torch.full((len(every),), i)).sort().values[:5]
        flips = found[(found.rows == i) & (changes == 1)]
        torch.testing.assert_close(merit(task, flips.x, flips.rows), expected)
        assert changes[found.rows == i].bincount().tolist()[:4] == [0, 5, 5, 5]


def test_numbers_of_bank_rows_are_combined_with_levels_and_each_feature_changes_once():
    made = setup(applicants())
    task, rows = made.task(made.x[:20]), torch.arange(20)
    real = made.engine.bank.verified(task, rows, 2)
    found = Beam(depth=3).run(task, rows, Moves.of(task, rows, real, made.engine.bank.typical))
    changed = task.layout.changed(found.x, task.x[found.rows])
    assert changed.sum(dim=1).unique().tolist() == [1, 2, 3]
    for block in task.mutable:
        if block.number is not None:
            for row, x in zip(found.rows.tolist(), found.x, strict=True):
                typical = made.engine.bank.typical.get(block.number)
                known = [
                    *real.x[real.rows == row][:, block.number].tolist(),
                    float(task.x[row, block.number]),
                ]
                pins = [pin for pin in block.pinned if pin is not None]
                assert float(x[block.number]) in [*known, *pins, typical]


def test_a_row_alone_gets_the_combinations_that_it_gets_in_a_batch():
    made = setup(applicants())
    task = made.task(made.x[:8])
    together = beam(task, torch.arange(8), made.engine.bank.typical)
    for i in range(8):
        alone = beam(task, torch.tensor([i]), made.engine.bank.typical)
        assert torch.equal(alone.x, together.x[together.rows == i])


def test_combinations_that_nothing_mends_are_left_out_and_the_others_stay():
    made = setup(applicants(), bar=0.5)
    task, rows = made.task(made.x[:12]), torch.arange(12)
    typical, depth = made.engine.bank.typical, {"depth": 2, "first": 4}
    every = beam(task, rows, typical, **depth)
    missed = (-task.constraint_values(every.x, every.rows)).clamp_min(0).sum(dim=1)
    limit = float(missed.median())
    found = beam(task, rows, typical, **depth, mended=limit)
    expected = every[missed <= limit]
    assert 0 < len(expected) < len(every)
    # A row may be given up before its last change.
    assert {*map(tuple, found.x.tolist())} <= {*map(tuple, expected.x.tolist())}
    assert len(found) >= 0.8 * len(expected)
    assert len(beam(task, rows, typical, **depth, mended=-1.0)) == 0
    for i in range(12):
        alone = beam(task, torch.tensor([i]), typical, **depth, mended=limit)
        assert torch.equal(alone.x, found.x[found.rows == i])


def test_no_more_categories_are_flipped_than_the_depth_allows():
    made = categories()
    task = made.task(made.x[:10])
    found = beam(task, torch.arange(10), {}, depth=2)
    assert task.layout.changed(found.x, task.x[found.rows]).sum(dim=1).unique().tolist() == [1, 2]


def test_a_flipped_state_brings_its_number_and_nothing_enters_or_leaves_a_missing_one():
    made = setup(applicants(missing=True))
    x = made.x[:60]
    task = made.task(x)
    found = beam(task, torch.arange(60), made.engine.bank.typical)
    layout, block = task.layout, task.layout.block("gain")
    place = [b.name for b in layout.with_levels].index("gain")
    before, after = layout.codes(x[found.rows])[:, place], layout.codes(found.x)[:, place]
    assert torch.equal(before == 2, after == 2)
    turned = before != after
    assert turned.any()
    typical = made.engine.bank.typical[block.number]
    expected = torch.where(after == 0, typical, 0.0)[turned]
    assert torch.equal(found.x[turned, block.number], expected)
    others = [column for column in layout.numbers if column != block.number]
    assert torch.equal(found.x[:, others], x[found.rows][:, others])
    assert torch.equal(found.x[~turned][:, block.number], x[found.rows][~turned][:, block.number])
    job = [b.name for b in layout.with_levels].index("job")
    gone = layout.codes(x)[:, job] == 4
    assert torch.equal(layout.codes(found.x)[:, job] == 4, gone[found.rows])


def test_a_table_of_numbers_has_no_flips_nor_has_one_whose_categories_are_fixed():
    made = setup(applicants()[["income", "savings"]])
    assert len(beam(made.task(made.x[:5]), torch.arange(5), {})) == 0
    made = setup(applicants()[["income", "job"]], [Immutable("job")])
    assert len(beam(made.task(made.x[:5]), torch.arange(5), {})) == 0
