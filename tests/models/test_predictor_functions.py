"""Predictors of functions: results of many forms are read, and rows without a prediction are NaN."""

import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesClassifier,
    RandomForestClassifier,
)

from plausiflow.errors import ModelError
from plausiflow.models import count_model_calls
from plausiflow.models.predictor import Predictor, make_predictor
from predictors import (
    FRAME,
    NAMES,
    NEW,
    NO_YES,
    NUMBERS,
    THREE,
    assert_equal,
    chance,
    outcomes,
    pipeline,
    score,
    table,
    two,
)

FORMS = {
    "array": lambda frame: two(chance(frame)),
    "single precision": lambda frame: two(chance(frame)).astype(np.float32),
    "list": lambda frame: two(chance(frame)).tolist(),
    "tensor": lambda frame: torch.tensor(two(chance(frame)), requires_grad=True),
    "half tensor": lambda frame: torch.tensor(chance(frame)).bfloat16(),
    "table": lambda frame: pd.DataFrame(two(chance(frame))),
    "named": lambda frame: pd.DataFrame({"no": 1 - chance(frame), "yes": chance(frame)}),
    "shuffled": lambda frame: pd.DataFrame({"yes": chance(frame), "no": 1 - chance(frame)}),
    "nullable": lambda frame: pd.Series(chance(frame), dtype="Float64"),
    "column": lambda frame: chance(frame)[:, None],
    "series": lambda frame: pd.Series(chance(frame), index=frame.index[::-1]),
    "column of tensors": lambda frame: [torch.tensor(p) for p in chance(frame)],
    "squeezed": lambda frame: two(chance(frame)).squeeze(),
    "squeezed column": lambda frame: torch.tensor(chance(frame)).squeeze(),
    "percent off": lambda frame: two(chance(frame)) * 1.0005,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_function_may_answer_with_probabilities_in_many_forms(form):
    made = make_predictor(FORMS[form], FRAME, NO_YES)
    assert made.output_kind == "probabilities"
    outputs = made.outputs(NEW)
    np.testing.assert_allclose(outputs.numpy(), two(chance(NEW)), atol=0.01 if "half" in form else 1e-7)
    torch.testing.assert_close(outputs.sum(dim=1), torch.ones(len(NEW)), atol=1e-12, rtol=0)
    assert_equal(made.outputs(NEW.iloc[[3]]), outputs[[3]])


@pytest.mark.parametrize("labels", [*NAMES.values(), THREE, (1.5, 2.5)])
@pytest.mark.parametrize(
    "form", [np.asarray, list, pd.Series, lambda found: np.asarray(found)[:, None], pd.Categorical]
)
def test_a_function_may_answer_with_labels(labels, form):
    def label(frame):
        return form([labels[int(age) % len(labels)] for age in frame["age"]])

    made = make_predictor(label, FRAME, labels)
    assert made.output_kind == "labels"
    assert repr(made) == f"Predictor(a function `label`, {len(labels)} classes; labels)"
    assert_equal(made.outputs(NEW), np.eye(len(labels))[NEW["age"] % len(labels)])


def test_zeros_and_ones_stay_probabilities_where_a_sure_model_becomes_unsure():
    model = ExtraTreesClassifier(8, random_state=0).fit(NUMBERS, outcomes(FRAME, (0, 1)))
    made = make_predictor(lambda frame: model.predict_proba(frame[NUMBERS.columns])[:, 1], FRAME, (0, 1))
    truth = model.predict_proba(NEW[NUMBERS.columns])
    assert made.output_kind == "labels"
    assert ((truth > 0) & (truth < 1)).any()
    assert_equal(made.outputs(NEW), truth)


def test_zeros_and_ones_are_probabilities_of_the_second_of_two_names():
    made = make_predictor(lambda frame: frame["owns"], FRAME, NO_YES)
    assert made.output_kind == "probabilities"
    assert made.outputs(NEW).argmax(dim=1).bool().tolist() == NEW["owns"].tolist()


@pytest.mark.parametrize("form", [np.asarray, list, pd.Series, torch.as_tensor, lambda found: found[:, None]])
def test_a_function_may_answer_with_numbers(form):
    made = make_predictor(lambda frame: form(score(frame) - 4), FRAME, None)
    assert_equal(made.outputs(NEW), score(NEW) - 4)


def test_a_function_gets_every_column_as_in_training_with_a_range_index():
    seen = []

    def positions(frame):
        seen.append(frame)
        return frame.to_numpy()[:, 0].astype(float) / 100

    made = make_predictor(positions, FRAME, NO_YES)
    assert_equal(made.outputs(NEW[NEW.columns[::-1]])[:, 1], NEW["age"] / 100)
    pd.testing.assert_frame_equal(seen[-1], NEW.reset_index(drop=True))


def test_what_a_function_is_called():
    class Scorer:
        def __call__(self, frame):
            return chance(frame)

    assert make_predictor(chance, FRAME, NO_YES).name == "a function `chance`"
    assert make_predictor(Scorer(), FRAME, NO_YES).name == "a function `Scorer`"
    assert make_predictor(partial(chance), FRAME, NO_YES).name == "a function `partial`"
    assert make_predictor(lambda frame: chance(frame), FRAME, NO_YES).name == "a function `<lambda>`"


def test_calls_and_rows_are_counted_and_an_empty_table_costs_none():
    made, values = make_predictor(chance, FRAME, NO_YES), make_predictor(score, FRAME, None)
    with count_model_calls() as counted:
        assert made.outputs(NEW.iloc[:0]).shape == (0, 2)
        assert values.outputs(NEW.iloc[:0]).shape == (0,)
        assert counted.calls == 0
        made.outputs(NEW)
        made.outputs(FRAME.iloc[:7])
    assert (counted.calls, counted.rows) == (2, 57)


def test_a_predictor_can_be_created_from_any_function():
    made = Predictor(
        name="mine", output_kind="scores", labels=NO_YES, function=lambda frame: score(frame) - 5
    )
    assert_equal(made.outputs(NEW), two(chance(NEW)))


def test_a_predictor_can_be_pickled():
    model = pipeline(RandomForestClassifier(3, random_state=0)).fit(FRAME, outcomes(FRAME, NO_YES))
    made = make_predictor(model, FRAME, NO_YES)
    assert_equal(pickle.loads(pickle.dumps(made)).outputs(NEW), model.predict_proba(NEW))


def changing(change):
    """A probability that is changed where rows are younger than 18: not in training."""
    return lambda frame: np.where(frame[["age"]] < 18, change, two(chance(frame)))


@pytest.mark.parametrize("change", [np.nan, np.inf, [-0.5, 1.5], [0.3, 0.3], [1.2, -0.2], [0.5, np.nan]])
def test_a_row_without_an_answer_is_nan_and_the_others_are_not(change):
    made = make_predictor(changing(change), FRAME, NO_YES)
    rows = NEW.assign(age=NEW["age"].where(np.arange(len(NEW)) != 3, 17))
    outputs = made.outputs(rows)
    assert outputs[3].isnan().all()
    others = np.arange(len(NEW)) != 3
    assert_equal(outputs[torch.from_numpy(others)], two(chance(NEW))[others])


def test_a_little_outside_is_put_inside_and_more_is_none_in_every_class():
    def three(frame):
        return np.array([[1.0005, -0.0005, 0.0], [1.2, -0.2, 0.0], [0.2, 0.3, 0.5]])[frame["age"] % 3]

    made = make_predictor(three, FRAME[FRAME["age"] % 3 != 1], THREE)
    outputs = made.outputs(NEW.iloc[:3].assign(age=[30, 31, 32]))
    assert_equal(outputs[::2], [[1, 0, 0], [0.2, 0.3, 0.5]])
    assert outputs[1].isnan().all()


def test_a_value_that_is_not_finite_and_a_label_that_is_unknown_are_nan():
    values = make_predictor(lambda frame: np.where(frame["age"] < 18, np.inf, 2.0), FRAME, None)
    labels = make_predictor(lambda frame: np.where(frame["age"] < 18, "never", "no"), FRAME, NO_YES)
    rows = NEW.iloc[:2].assign(age=[17, 30])
    assert values.outputs(rows).isnan().tolist() == [True, False]
    assert labels.outputs(rows).isnan().all(dim=1).tolist() == [True, False]


def raising(frame):
    if (frame["age"] < 18).any():
        raise RuntimeError("too young")
    return chance(frame)


@settings(max_examples=40)
@given(st.sets(st.integers(0, 49), max_size=2))
def test_rows_that_raise_are_nan_and_no_others(bad):
    made = make_predictor(raising, FRAME, NO_YES)
    rows = NEW.assign(age=[17 if i in bad else age for i, age in enumerate(NEW["age"])])
    with count_model_calls() as counted:
        outputs = made.outputs(rows)
    assert set(outputs.isnan().any(dim=1).nonzero()[:, 0].tolist()) == bad
    good = [i for i in range(len(NEW)) if i not in bad]
    assert_equal(outputs[good], two(chance(NEW))[good])
    assert counted.calls <= 1 + 2 * 6 * len(bad)


def test_a_model_that_raises_for_most_rows_is_asked_at_most_65_times():
    made = make_predictor(raising, FRAME, NO_YES)
    rows = table(1000, seed=3)
    rows.iloc[100:900, 0] = 17
    with count_model_calls() as counted:
        outputs = made.outputs(rows)
    assert counted.calls == 65
    assert outputs[100:900].isnan().all()
    assert not outputs[:60].isnan().any()
    assert not outputs[940:].isnan().any()


@pytest.mark.parametrize("wrong", [lambda p: two(p)[:-1], lambda p: np.zeros((len(p), 3)), lambda p: None])
def test_a_result_of_a_wrong_shape_raises_later_too(wrong):
    made = make_predictor(
        lambda f: wrong(chance(f)) if (f["age"] < 18).any() else two(chance(f)), FRAME, NO_YES
    )
    with pytest.raises(
        ModelError, match=r"a function `<lambda>` must return probabilities of shape .* for n = 50 rows"
    ):
        made.outputs(NEW.assign(age=17))


def test_a_model_s_warnings_are_not_shown():
    def warning(frame):
        warnings.warn("do not look", stacklevel=1)
        return chance(frame)

    assert_equal(make_predictor(warning, FRAME, NO_YES).outputs(NEW), two(chance(NEW)))


def test_a_model_in_single_precision_may_differ_a_little_between_batches():
    layers = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).float()

    def value(frame):
        with torch.no_grad():
            return layers(torch.tensor(frame[["age", "the income"]].to_numpy()).float()) * 1e5

    assert_equal(make_predictor(value, FRAME, None).outputs(NEW), value(NEW)[:, 0].double())


def test_a_model_that_writes_into_its_rows_harms_no_one():
    def writing(frame):
        answer = chance(frame)
        frame.loc[:, "age"] = 0
        frame["job"] = "none"
        frame.drop(columns="owns", inplace=True)
        return answer

    class WritesIntoArrays:
        n_features_in_ = 3

        def predict(self, rows):
            answer = rows[:, 0] * 2.0
            rows[:] = 0
            return answer

    before, numbers = FRAME.copy(), NUMBERS.astype(float)
    assert_equal(make_predictor(writing, FRAME, NO_YES).outputs(FRAME), two(chance(FRAME)))
    pd.testing.assert_frame_equal(FRAME, before)
    assert_equal(make_predictor(WritesIntoArrays(), numbers, None).outputs(numbers), FRAME["age"] * 2.0)
    pd.testing.assert_frame_equal(numbers, NUMBERS.astype(float))


def test_one_training_row_is_enough():
    assert make_predictor(chance, FRAME.iloc[:1], NO_YES).outputs(NEW).shape == (50, 2)


def test_a_large_table_is_checked_on_a_few_of_its_rows():
    sizes = []

    def counting(frame):
        sizes.append(len(frame))
        return chance(frame)

    make_predictor(counting, table(5000), NO_YES)
    assert max(sizes) == 256
    assert len(sizes) <= 10
