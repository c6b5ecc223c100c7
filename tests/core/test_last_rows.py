"""What belongs to the rows of a search is looked up once."""

import torch

from plausiflow.core import LastRows, MovingColumns


def test_the_same_rows_are_looked_up_once_and_others_again():
    calls = []

    def function(rows):
        calls.append(rows)
        return 2 * rows

    last, rows, others = LastRows(function), torch.tensor([0, 2]), torch.tensor([1])
    assert last(rows) is last(rows)
    assert len(calls) == 1
    torch.testing.assert_close(last(others), 2 * others)
    torch.testing.assert_close(last(rows), 2 * rows)
    assert len(calls) == 3


def test_moving_columns_keep_the_other_columns_of_each_row():
    moving = MovingColumns.of(torch.arange(6.0).view(2, 3), [1])
    for rows in (torch.tensor([0, 1]), torch.tensor([1])):
        for value in (7.0, 8.0):
            found = moving.encoded(torch.full((len(rows), 1), value), rows)
            expected = moving.template[rows].clone()
            expected[:, 1] = value
            torch.testing.assert_close(found, expected)
    torch.testing.assert_close(moving.template, torch.arange(6.0).view(2, 3))
