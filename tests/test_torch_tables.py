"""Torch modules of a table: the modules themselves, on rows made with pandas, are the truth."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from plausiflow.classifiers.torch_tables import TableModule, torch_classifier, torch_regressor
from plausiflow.data.encoding import Encoder
from plausiflow.data.schema import Schema
from plausiflow.errors import InvalidInputError, ModelError, ShapeError
from plausiflow.protocols import Classifier, Regressor

ROWS = 120
COLUMNS = 7


def table(seed=0, n=ROWS, missing=0.15) -> pd.DataFrame:
    """Whole numbers, a heavy tail, many zeros, missing numbers, booleans, few values, a constant."""
    rng = np.random.default_rng(seed)
    gone = [rng.random(n) < missing for _ in range(2)]
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": rng.lognormal(3, 1.5, n),
            "owns": rng.random(n) < 0.4,
            "gain": np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2, 300, n)),
            "rate": np.where(gone[0], np.nan, rng.normal(size=n)),
            "lines": pd.Series(rng.integers(0, 4, n), dtype=float).mask(gone[1]),
            "scale": 7,
        }
    )


def encoder_of(frame) -> Encoder:
    return Encoder(Schema.infer(frame))


def numbers(frame) -> torch.Tensor:
    """What a module is given: pandas' own conversion, in double precision."""
    return torch.from_numpy(frame.to_numpy(dtype=np.float64))


class Net(nn.Module):
    """Scales its input as a user would, and fills what is missing."""

    def __init__(self, outputs=2, end=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(COLUMNS, 5), nn.Tanh(), nn.Linear(5, outputs))
        self.end = end or nn.Identity()
        self.register_buffer("size", torch.tensor([50.0, 50.0, 1.0, 500.0, 1.0, 2.0, 7.0]))

    def forward(self, rows):
        return self.end(self.layers(rows.nan_to_num() / self.size))


def expected(module, rows) -> torch.Tensor:
    """The module's answers in double precision, evaluation mode."""
    with torch.no_grad():
        return copy.deepcopy(module).double().eval()(numbers(rows))


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


@pytest.mark.parametrize("end", [nn.Identity(), nn.Flatten(0)], ids=["column", "flat"])
def test_a_single_output_is_the_logit_of_class_one(end):
    frame, module = table(), Net(1, end)
    encoder = encoder_of(frame)
    logits = torch_classifier(module, encoder, frame, 2).logits(encoder.encode(frame).x)
    own = expected(module, frame).reshape(-1)
    torch.testing.assert_close(logits, torch.stack([torch.zeros(ROWS), own], dim=1), rtol=1e-9, atol=1e-9)


def test_probabilities_become_their_logarithms():
    frame, encoder = table(), encoder_of(table())
    for module in (Net(3, nn.Softmax(dim=1)), Net(1, nn.Sigmoid())):
        n_classes = 3 if module.end.__class__ is nn.Softmax else 2
        classifier = torch_classifier(module, encoder, frame, n_classes)
        proba = classifier.logits(encoder.encode(frame).x).softmax(dim=1)
        own = expected(module, frame)
        own = own if n_classes == 3 else torch.cat([1 - own, own], dim=1)
        torch.testing.assert_close(proba, own, rtol=0, atol=1e-9)
        assert repr(classifier) == f"TableModule(Net, {n_classes} classes; probabilities)"


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
        assert regressor.says == "a torch module that gives numbers"


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
    assert classifier.says == "a torch module that gives logits"


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


class Functional(nn.Module):
    """Ends in a function."""

    def __init__(self, function, outputs=1):
        super().__init__()
        self.net, self.function = Net(outputs), function

    def forward(self, rows):
        return self.function(self.net(rows))


def small(outputs, bias) -> nn.Module:
    """A module that has hardly been trained: its bounded logits are near the bias."""
    module = Net(outputs)
    with torch.no_grad():
        module.layers[2].weight.mul_(0.05)
        module.layers[2].bias.fill_(bias)
    return module


def unbounded(module) -> nn.Module:
    module.net.layers[1] = nn.ReLU()
    return module


def both(logit):
    return torch.cat([1 - logit.sigmoid(), logit.sigmoid()], dim=1)


def mixed(logits):
    return logits.softmax(dim=1) @ torch.tensor([[0.9, 0.1], [0.2, 0.8]]).to(logits)


PROBABILITIES = {
    "a sigmoid": lambda: Net(1, nn.Sigmoid()),
    "a flat sigmoid": lambda: Functional(lambda z: torch.sigmoid(z).squeeze(-1)),
    "a softmax": lambda: Net(2, nn.Softmax(dim=-1)),
    "a function softmax": lambda: Functional(lambda z: z.softmax(dim=1), 2),
    "both probabilities": lambda: Functional(both),
    "mixed probabilities": lambda: Functional(mixed, 2),
    "a softmax that overflows": lambda: unbounded(
        Functional(lambda z: z.exp() / z.exp().sum(dim=1, keepdim=True), 2)
    ),
    "a clamp": lambda: Functional(lambda z: (0.5 + z / 10).clamp(0, 1)),
}
LOGITS = {
    "a linear map": lambda: Net(2),
    "log-probabilities": lambda: Net(2, nn.LogSoftmax(dim=1)),
    "small logits": lambda: small(1, 0.5),
    "small flat logits": lambda: nn.Sequential(small(1, 0.5), nn.Flatten(0)),
    "small logits of two": lambda: small(2, 0.3),
    "small unbounded logits": lambda: unbounded(Functional(lambda z: 0.5 + 1e-3 * z[:, 0])),
    "a sigmoid for each class": lambda: Net(2, nn.Sigmoid()),
    "a tanh": lambda: Net(1, nn.Tanh()),
}


@pytest.mark.parametrize("name", PROBABILITIES | LOGITS)
def test_what_a_module_returns_is_found_out(name):
    frame, module = table(), (PROBABILITIES | LOGITS)[name]()
    found = torch_classifier(module, encoder_of(frame), frame, 2).output
    assert found == ("probabilities" if name in PROBABILITIES else "logits")


def test_logits_that_look_like_probabilities_near_the_table_are_told_far_from_it():
    frame = table(missing=0.0)
    weight = torch.zeros(1, COLUMNS)
    weight[0, 0] = 1 / 100
    linear = nn.Linear(COLUMNS, 1, bias=False)
    linear.weight = nn.Parameter(weight)
    module = nn.Sequential(linear, nn.ReLU())
    assert 0 <= float(expected(module, frame).min()) < float(expected(module, frame).max()) <= 1
    assert torch_classifier(module, encoder_of(frame), frame, 2).output == "logits"


def test_what_a_module_returns_can_be_said():
    frame, encoder = table(), encoder_of(table())
    x = encoder.encode(frame).x
    module = Net(1, nn.Sigmoid())
    classifier = torch_classifier(module, encoder, frame, 2, "logits")
    assert classifier.output == "logits"
    torch.testing.assert_close(classifier.logits(x)[:, 1:], expected(module, frame), rtol=1e-9, atol=1e-9)
    assert torch_classifier(module, encoder, frame, 2, "probabilities").output == "probabilities"
    with pytest.raises(ModelError, match=r"must return probabilities, in \[0, 1\] and summing to one"):
        torch_classifier(Net(3), encoder, frame, 3, "probabilities")
    with pytest.raises(InvalidInputError, match="`output` must be"):
        torch_classifier(Net(3), encoder, frame, 3, "odds")


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
        with pytest.raises(InvalidInputError, match=rf"give a function `DataFrame -> {instead}") as raised:
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
    r"raised RuntimeError.*given the 7 columns of the table.* in this order: age, income": nn.Linear(5, 2),
    r"returned NaN for 120 of 120 rows": Doubtful(lambda rows: rows[:, :2] * torch.nan),
    r"no gradient with respect to its input": Doubtful(lambda rows: rows[:, :2].detach()),
    r"no gradient that is finite and not zero at any of 120": Doubtful(lambda rows: rows[:, :2].round()),
    r"no gradient that is finite": Doubtful(lambda rows: (rows[:, :2] * 0).sqrt() + 5),
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
    with pytest.raises(InvalidInputError, match="columns of the training table are not there: 'age'"):
        torch_classifier(Net(2), encoder, frame.drop(columns="age"), 2)
    with pytest.raises(InvalidInputError, match="no training row can be encoded"):
        torch_classifier(Net(2), encoder, frame.iloc[:0], 2)


def test_a_module_can_be_taken_where_gradients_are_off():
    frame, encoder = table(), encoder_of(table())
    with torch.no_grad():
        assert torch_classifier(small(1, 0.5), encoder, frame, 2).output == "logits"
        torch_regressor(Net(1), encoder, frame)
