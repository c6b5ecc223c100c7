"""Changes that alone lead away from the target: closed ways by brute force, answers without such changes."""

from dataclasses import replace

import torch

from plausiflow.search import Candidates
from plausiflow.search.directions import closed, without_adverse
from plausiflow.search.sparsify import more_sensible
from searching import applicants, setup

MOST = 1.3
"""The highest cost of an answer that is easier to follow, in multiples of the cheapest one."""


def test_a_closed_way_leaves_the_other_way_and_other_levels_open():
    made = setup(applicants(), bar=2.0)
    task, layout = made.task(made.x[:60]), made.encoder.layout
    torch.manual_seed(0)
    there, points = made.x[60:120], made.x[120:180]
    changes = layout.changed(there, task.x) & (torch.rand(60, len(layout.blocks)) < 0.4)
    rows = torch.arange(60)
    inside = closed(task, there, changes).allowance.contains(points, rows)
    expected = task.allowance.contains(points, rows)
    for i in range(60):
        for j in changes[i].nonzero()[:, 0].tolist():
            block = layout.blocks[j]
            own, gone, point = task.x[i], there[i], points[i]
            if len(block.levels):
                same = torch.equal(gone[block.level_slice], point[block.level_slice])
                expected[i] &= not same or torch.equal(gone[block.level_slice], own[block.level_slice])
            if block.number is not None:
                expected[i] &= (gone[block.number] - own[block.number]) * (
                    point[block.number] - own[block.number]
                ) <= 0
    assert torch.equal(inside, expected)
    assert 0 < int(expected.sum()) < 60


def test_answers_without_adverse_changes_are_feasible_within_the_limit_and_easier_to_follow():
    made = setup(applicants(), bar=2.0)
    task = made.task(made.x[:120])
    plain = replace(made.engine.strategy, sparse=False).run(task, made.engine.bank).feasible.cheapest(1)
    limits = torch.full((len(task),), torch.inf, dtype=torch.float64)
    limits[plain.rows] = MOST * plain.cost

    def starts(part, _):
        return part.candidates(torch.arange(len(part)), part.x)

    more = without_adverse(task, plain, limits, starts)
    assert len(more) > 5
    assert torch.equal(task.check(more).cost, more.cost)
    before = dict(zip(plain.rows.tolist(), adverse_by_hand(made, task, plain), strict=True))
    after = adverse_by_hand(made, task, more)
    for row, names in zip(more.rows.tolist(), after, strict=True):
        assert before[row]
        assert not before[row] & names
    within = more.cost <= limits[more.rows]
    assert within.double().mean() > 0.8
    assert sum(not names for names in after) > len(more) / 2


def test_the_first_answer_gives_way_to_a_cheap_one_with_fewer_adverse_changes():
    made = setup(applicants(), bar=2.0)
    task = made.task(made.x[:20])
    torch.manual_seed(3)
    rows = torch.randint(20, (400,))
    x = torch.where(torch.rand(400, 1) < 0.4, made.x[torch.randint(20, 300, (400,))], task.x[rows])
    answers = Candidates(rows=rows, x=x, cost=1 + torch.rand(400, dtype=torch.float64))
    final, others = answers[:100].cheapest(2), answers[100:]
    chosen = more_sensible(task, final, others, 0.3)
    of = {}
    for name, part in (("final", final), ("others", others), ("chosen", chosen)):
        names = adverse_by_hand(made, task, part)
        of[name] = list(zip(part.rows.tolist(), part.cost.tolist(), names, strict=True))
    replaced = 0
    for row in final.rows.unique().tolist():
        cost, names = min((c, names) for i, c, names in of["final"] if i == row)
        fewer = [c for i, c, n in of["others"] if i == row and len(n) < len(names) and c <= 1.3 * cost]
        first, left = min((c, names) for i, c, names in of["chosen"] if i == row)
        replaced += bool(fewer)
        assert (first == cost) == (not fewer)
        assert not fewer or (first in fewer and len(left) < len(names))
    assert 0 < replaced < len(final.rows.unique())


def adverse_by_hand(made, task, answers):
    """Return for each answer its changes that alone lower the probability of the target, with their signs."""
    found = []
    for row, x in zip(answers.rows.tolist(), answers.x, strict=True):
        wanted, own, names = int(task.y_target[row]), task.x[row], set()
        for block in made.encoder.layout.blocks:
            columns = block.columns
            if torch.equal(x[columns], own[columns]):
                continue
            alone = own.clone()
            alone[columns] = x[columns]
            logits = made.classifier.logits(torch.stack([own, alone]))
            gain = (logits[:, wanted] - logits[:, 1 - wanted]).diff()
            if float(gain) < -1e-9:
                way = 0 if block.number is None else int(torch.sign(x[block.number] - own[block.number]))
                names.add((block.name, way or tuple(x[columns].tolist())))
        found.append(names)
    return found
