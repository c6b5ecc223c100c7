"""Tables and torch modules that do not fit each other are told with what to do."""

import numpy as np
import pytest
import torch
from torch import nn

from plausiflow.errors import InvalidInputError, ModelError, ShapeError
from plausiflow.models.torch_module import torch_classifier, torch_regressor
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from table_modules import COLUMNS, ROWS, Functional, Net, encoder_of, table


def test_text_identifiers_and_constants_that_may_be_missing_are_named_all_at_once():
    frame = table().assign(
        number=np.arange(ROWS),
        job=["clerk", "nurse"] * (ROWS // 2),
        grade="A",
        odd=[1.0, np.nan] * (ROWS // 2),
    )
    encoder = Encoder(Schema.infer(frame, kinds={"number": "identifier"}))
    for make, instead in (
        (
            lambda: torch_classifier(Net(2), encoder, frame, 2),
            r"probabilities`, or a module of encoded rows in",
        ),
        (lambda: torch_regressor(Net(1), encoder, frame), r"numbers`, or an object with `values\(x\)`"),
    ):
        with pytest.raises(InvalidInputError, match=rf"use a function `DataFrame -> {instead}") as raised:
            make()
        text = str(raised.value)
        assert "`number` is an identifier, which encoded rows do not hold. Drop the column" in text
        assert "`odd` is a constant that some rows miss" in text
        assert "`job`, `grade`: text" in text


class Raising(nn.Module):
    def forward(self, rows):
        raise KeyError("no such column")


class Doubtful(nn.Module):
    """A function of the rows, with no parameters."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, rows):
        return self.function(rows.nan_to_num())


BAD = {
    r"raised KeyError for rows of shape \(120, 7\).*'no such column'": Raising(),
    r"raised RuntimeError.*takes the 7 columns of the table.* in this order: age, income": nn.Linear(5, 2),
    r"returned NaN for 120 of 120 rows": Doubtful(lambda rows: rows[:, :2] * torch.nan),
    r"no gradient with respect to its input": Doubtful(lambda rows: rows[:, :2].detach()),
    r"no finite, nonzero gradient at any of 120": Doubtful(lambda rows: rows[:, :2].round()),
    r"no finite, nonzero gradient": Doubtful(lambda rows: (rows[:, :2] * 0).sqrt() + 5),
}


@pytest.mark.parametrize("text", BAD)
def test_a_module_that_fails_on_the_training_rows_is_told(text):
    frame = table(missing=0.0)
    encoder = encoder_of(frame)
    with pytest.raises(ModelError, match=text):
        torch_classifier(BAD[text], encoder, frame, 2)
    with pytest.raises(ModelError, match=text):
        torch_regressor(nn.Sequential(BAD[text], nn.AvgPool1d(2)), encoder, frame)


def test_answers_of_another_shape_are_told():
    frame, encoder = table(), encoder_of(table())
    with pytest.raises(ModelError, match=r"must return shape \(120, 2\) or \(120, 1\).*got \(120, 3\)"):
        torch_classifier(Net(3), encoder, frame, 2)
    with pytest.raises(ModelError, match=r"must return shape \(120, 4\).*got \(120, 3\)"):
        torch_classifier(Net(3), encoder, frame, 4)
    with pytest.raises(ModelError, match=r"must return a tensor; got tuple"):
        torch_classifier(Functional(lambda z: (z, z)), encoder, frame, 2)
    with pytest.raises(ModelError, match=r"one number for each row is expected.*got \(120, 2\)"):
        torch_regressor(Net(2), encoder, frame)
    with pytest.raises(ModelError, match=r"one number for each row is expected.*got \(\)"):
        torch_regressor(Functional(torch.sum), encoder, frame)
    with pytest.raises(ModelError, match=r"one number for each row is expected.*got tuple"):
        torch_regressor(Functional(lambda z: (z, z)), encoder, frame)


def test_rows_that_miss_something_may_have_no_answer_but_others_must():
    frame = table()
    encoder = encoder_of(frame)
    x, complete = encoder.encode(frame).x, torch.tensor(frame.notna().all(axis=1).tolist())
    assert 0 < complete.sum() < ROWS
    logits = torch_classifier(nn.Linear(COLUMNS, 3), encoder, frame, 3).logits(x)
    torch.testing.assert_close(logits.isfinite().all(dim=1), complete)
    values = torch_regressor(nn.Linear(COLUMNS, 1), encoder, frame).values(x)
    torch.testing.assert_close(values.isfinite(), complete)


def test_what_is_no_module_is_told():
    frame, encoder = table(), encoder_of(table())
    with pytest.raises(InvalidInputError, match=r"`module` must be a torch.nn.Module; got function"):
        torch_regressor(lambda rows: rows[:, 0], encoder, frame)
    with pytest.raises(InvalidInputError, match=r"`module` must be a torch.nn.Module.*`n_classes` must be"):
        torch_classifier(lambda rows: rows[:, 0], encoder, frame, 1)


def test_rows_must_be_those_of_the_table():
    frame, encoder = table(), encoder_of(table())
    classifier = torch_classifier(Net(2), encoder, frame, 2)
    x = encoder.encode(frame).x
    with pytest.raises(ShapeError, match=r"must have shape \(n, \d+\).* got \(120, 3\)"):
        classifier.logits(x[:, :3])
    with pytest.raises(InvalidInputError, match=r"float tensor; got torch.int64"):
        classifier.logits(x.long())
    with pytest.raises(InvalidInputError, match="columns of the training table are missing: 'age'"):
        torch_classifier(Net(2), encoder, frame.drop(columns="age"), 2)
    with pytest.raises(InvalidInputError, match="no training row can be encoded"):
        torch_classifier(Net(2), encoder, frame.iloc[:0], 2)
