"""Torch modules of a table: the modules themselves, on rows made with pandas, are the truth."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from plausiflow.core.protocols import Classifier, Regressor
from plausiflow.models.torch_module import TableModule, torch_classifier, torch_regressor
from plausiflow.tables.encoder import Encoder
from table_modules import ROWS, Net, encoder_of, expected, numbers, table


def new_rows(frame, seed=1) -> pd.DataFrame:
    """Every column drawn by itself, and numbers moved, some beyond the range of the table."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({name: frame[name].iloc[rng.integers(0, len(frame), 200)].array for name in frame})
    rows["age"] += rng.integers(-9, 9, 200)
    return rows.assign(income=rows["income"] * rng.uniform(0.2, 1.5, 200))


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_module_of_the_table_keeps_its_logits(n_classes, precision):
    frame, module = table(), Net(n_classes).to(precision)
    encoder = encoder_of(frame)
    classifier = torch_classifier(module, encoder, frame, n_classes)
    rows = new_rows(frame)
    logits = classifier.logits(encoder.encode(rows).x)
    assert logits.dtype == torch.float64
    torch.testing.assert_close(logits, expected(module, rows), rtol=1e-9, atol=1e-9)
    assert repr(classifier) == f"TableModule(Net, {n_classes} classes; logits)"


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_module_of_the_table_keeps_its_numbers(precision):
    frame, rows = table(), new_rows(table())
    encoder = encoder_of(frame)
    for end in (nn.Identity(), nn.Flatten(0), nn.Softplus(), nn.Sigmoid()):
        module = Net(1, end).to(precision)
        regressor = torch_regressor(module, encoder, frame)
        values = regressor.values(encoder.encode(rows).x)
        torch.testing.assert_close(values, expected(module, rows).reshape(-1), rtol=1e-9, atol=1e-9)
        assert repr(regressor) == "TableModule(Net; numbers)"
        assert regressor.description == "a torch module that returns numbers"


class Spy(nn.Module):
    """Keeps what it is given."""

    seen = None

    def forward(self, rows):
        Spy.seen = rows.detach().clone()
        return rows.nan_to_num()[:, :2]


def test_a_module_is_given_the_columns_as_they_are_in_the_order_of_the_table():
    frame = table()
    encoder = encoder_of(frame)
    assert encoder.layout.block("gain").levels
    assert encoder.schema.feature("scale").kind == "constant"
    classifier = torch_classifier(Spy(), encoder, frame[frame.columns[::-1]], 2)
    rows = new_rows(frame)
    classifier.logits(encoder.encode(rows[rows.columns[::-1]]).x)
    torch.testing.assert_close(Spy.seen, numbers(rows), rtol=1e-12, atol=1e-12, equal_nan=True)
    assert Spy.seen.isnan().any()


def test_numbers_written_as_objects_or_categories_are_numbers():
    frame = table(missing=0.0)
    written = frame.assign(
        age=frame["age"].astype(object),
        owns=frame["owns"].astype(object),
        lines=frame["lines"].astype("category"),
        rate=frame["rate"].astype("Float64"),
    )
    encoder = encoder_of(written)
    torch_classifier(Spy(), encoder, written, 2).logits(encoder.encode(written).x)
    torch.testing.assert_close(Spy.seen, numbers(frame), rtol=1e-12, atol=1e-12)


def test_missing_levels_are_missing_and_filled_ones_filled():
    frame = table()
    frame["owns"] = frame["owns"].astype(object).where(np.arange(ROWS) % 5 > 0, None)
    encoder = encoder_of(frame)
    torch_classifier(Spy(), encoder, frame, 2).logits(encoder.encode(frame).x)
    torch.testing.assert_close(Spy.seen, numbers(frame.astype(float)), rtol=1e-9, atol=1e-9, equal_nan=True)
    filling = Encoder(encoder.schema, missing="impute")
    torch_classifier(Spy(), filling, frame, 2).logits(filling.encode(frame).x)
    assert not Spy.seen.isnan().any()
    filled = Spy.seen[torch.tensor(frame["owns"].isna().tolist()), 2]
    assert (filled == float(frame["owns"].mode()[0])).all()


def test_gradients_are_those_of_finite_differences():
    frame = table(missing=0.0)
    encoder = encoder_of(frame)
    x = encoder.encode(frame.iloc[:3]).x.requires_grad_()
    for module in (Net(3), Net(3, nn.Softmax(dim=1)), Net(1, nn.Sigmoid())):
        n_classes = 3 if module.layers[-1].out_features == 3 else 2
        assert torch.autograd.gradcheck(torch_classifier(module, encoder, frame, n_classes).logits, x)
    assert torch.autograd.gradcheck(torch_regressor(Net(1), encoder, frame).values, x)


def test_the_gradient_is_in_encoded_units_and_a_missing_number_has_none():
    frame = table()
    encoder, module = encoder_of(frame), Net(1).double()
    x = encoder.encode(frame).x.requires_grad_()
    (gradient,) = torch.autograd.grad(torch_regressor(module, encoder, frame).values(x).sum(), x)
    rows = numbers(frame).requires_grad_()
    (own,) = torch.autograd.grad(module(rows).sum(), rows)
    age, rate = (encoder.layout.block(name).number for name in ("age", "rate"))
    torch.testing.assert_close(gradient[:, age], own[:, 0] * np.ptp(frame["age"]), rtol=1e-9, atol=0)
    missing = torch.tensor(frame["rate"].isna().tolist())
    assert (gradient[missing, rate] == 0).all()
    assert gradient.isfinite().all()
    present = frame["rate"].dropna()
    torch.testing.assert_close(
        gradient[~missing, rate], own[~missing, 4] * np.ptp(present), rtol=1e-9, atol=0
    )


def test_it_satisfies_one_protocol_and_says_what_it_is():
    frame = table()
    classifier = torch_classifier(Net(2), encoder_of(frame), frame, 2)
    regressor = torch_regressor(Net(1), encoder_of(frame), frame)
    assert isinstance(classifier, TableModule)
    assert isinstance(classifier, Classifier)
    assert not isinstance(classifier, Regressor)
    assert isinstance(regressor, TableModule)
    assert isinstance(regressor, Regressor)
    assert not isinstance(regressor, Classifier)
    assert classifier.differentiable
    assert regressor.differentiable
    assert classifier.n_classes == 2
    assert classifier.output == "logits"
    assert classifier.description == "a torch module that returns logits"


def test_it_follows_the_precision_and_the_device_of_its_rows(device):
    frame = table()
    encoder = encoder_of(frame)
    x = encoder.encode(frame).x
    for made, answers in (
        (torch_classifier(Net(2), encoder, frame, 2), "logits"),
        (torch_regressor(Net(1), encoder, frame), "values"),
    ):
        single = getattr(made, answers)(x.float().to(device))
        assert single.dtype == torch.float32
        assert single.device.type == device.type
        torch.testing.assert_close(single.double().cpu(), getattr(made, answers)(x), rtol=0, atol=1e-4)


def test_copies_and_pickles_answer_alike_and_rows_are_independent():
    frame = table()
    encoder = encoder_of(frame)
    made = torch_classifier(Net(2), encoder, frame, 2)
    x = encoder.encode(frame).x
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        torch.testing.assert_close(other.logits(x), made.logits(x), rtol=0, atol=0)
    alone = torch.cat([made.logits(row[None]) for row in x[:8]])
    torch.testing.assert_close(alone, made.logits(x)[:8], rtol=0, atol=1e-12)
    assert made.logits(x[:0]).shape == (0, 2)


def test_a_module_in_training_mode_is_evaluated_and_left_alone():
    frame, encoder = table(), encoder_of(table())
    module = nn.Sequential(Net(4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))
    module[2].running_mean += torch.rand(4)
    assert module.training
    before = copy.deepcopy(module.state_dict())
    classifier = torch_classifier(module, encoder, frame, 2)
    x, state = encoder.encode(frame).x, torch.get_rng_state()
    torch.testing.assert_close(classifier.logits(x), expected(module, frame), rtol=1e-9, atol=1e-9)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training
    assert all(p.requires_grad for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    answers = classifier.logits(x)
    with torch.no_grad():
        module[3].weight.zero_()
    torch.testing.assert_close(classifier.logits(x), answers, rtol=0, atol=0)
