"""The tensors a method returns: taking rows, putting batches together, and what they show."""

from dataclasses import fields, replace

import pytest
import torch

from plausiflow.core.counterfactuals import Counterfactuals, concatenate

PER_ROW = [f.name for f in fields(Counterfactuals) if f.name not in ("path", "reason")]


def answers(n, steps=None):
    """Answers that differ from row to row in every field; every third row was not found."""
    x = torch.rand(n, 2)
    found = torch.arange(n) % 3 != 2
    return Counterfactuals(
        x=x,
        x_cf=torch.where(found[:, None], x + 1, torch.nan),
        y=torch.zeros(n, dtype=torch.long),
        y_target=torch.arange(n) % 2,
        y_cf=torch.where(found, torch.arange(n) % 2, -1),
        found=found,
        valid=found & (torch.arange(n) % 2 == 0),
        plausible=found & (torch.arange(n) % 4 < 2),
        log_prob=torch.where(found, torch.rand(n), torch.nan),
        log_delta=torch.rand(n),
        gradients=torch.arange(n),
        seconds=torch.rand(n),
        cpu_seconds=torch.rand(n),
        path=None if steps is None else torch.rand(steps, n, 2),
    )


def assert_same(found, expected):
    for name in PER_ROW:
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), rtol=0, atol=0, equal_nan=True
        )


def test_the_length_is_the_number_of_rows():
    assert len(answers(7)) == 7


def test_feasible_is_valid_and_plausible():
    cf = answers(12)
    assert cf.feasible.tolist() == [
        v and p for v, p in zip(cf.valid.tolist(), cf.plausible.tolist(), strict=True)
    ]
    assert 0 < cf.feasible.sum() < cf.valid.sum()


@pytest.mark.parametrize(
    "rows",
    [
        slice(1, 5),
        slice(None, None, 2),
        torch.tensor([4, 0, 0]),
        torch.arange(7) % 3 == 1,
        torch.zeros(0, dtype=torch.long),
    ],
    ids=["slice", "every second", "numbers", "mask", "none"],
)
def test_indexing_takes_the_same_rows_of_every_field(rows):
    cf = answers(7, steps=3)
    taken = cf[rows]
    for name in PER_ROW:
        torch.testing.assert_close(
            getattr(taken, name), getattr(cf, name)[rows], rtol=0, atol=0, equal_nan=True
        )
    assert torch.equal(taken.path, cf.path[:, rows])


def test_indexing_without_a_path_has_no_path():
    assert answers(4)[:2].path is None


def test_parts_put_together_are_the_whole():
    cf = answers(7, steps=3)
    whole = concatenate([cf[:3], cf[3:4], cf[4:]])
    assert_same(whole, cf)
    assert torch.equal(whole.path, cf.path)


def test_one_part_is_the_whole():
    cf = answers(3)
    assert concatenate([cf]) is cf


@pytest.mark.parametrize(
    "steps", [(3, 4), (3, None), (None, None)], ids=["other steps", "one without", "none"]
)
def test_paths_are_kept_only_where_every_part_has_as_many_steps(steps):
    parts = [answers(2, steps=count) for count in steps]
    whole = concatenate(parts)
    assert whole.path is None
    assert len(whole) == 4


def test_repr_counts_rows_and_verdicts():
    assert repr(answers(12)) == "Counterfactuals(12 rows, 8 found, 4 valid, 4 plausible)"


def test_answers_cannot_be_reassigned():
    with pytest.raises(AttributeError):
        answers(2).x = torch.zeros(2, 2)


def test_the_reason_why_no_row_has_an_answer_stays_with_some_and_with_all_rows():
    cf = replace(answers(4), reason="not for trees")
    assert cf[:2].reason == concatenate([cf[:2], cf[2:]]).reason == "not for trees"
    assert repr(cf).endswith("plausible; not for trees)")
