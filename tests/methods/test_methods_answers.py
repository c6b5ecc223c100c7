"""Results of every method: shapes, verdicts, timing, reproducibility."""

from dataclasses import fields

import pytest
import torch

from method_cases import assert_same
from plausiflow.core.counterfactuals import Counterfactuals
from plausiflow.core.losses import l2_distance
from plausiflow.core.prediction import predict


def test_everything_has_one_entry_per_row_in_the_dtype_and_on_the_device_of_the_input(two_classes, entry):
    x = two_classes.x[:12]
    found = two_classes.method(entry).explain(x)
    assert found.x_cf.shape == found.x.shape == x.shape
    assert found.x_cf.dtype == x.dtype
    assert found.reason == ""
    for field in fields(Counterfactuals):
        if field.name == "reason":
            continue
        value = getattr(found, field.name)
        assert value is None or (len(value) == 12 and value.device == x.device), field.name
    assert {v.dtype for v in (found.y, found.y_target, found.y_cf, found.gradients)} == {torch.long}
    assert {v.dtype for v in (found.found, found.valid, found.plausible, found.feasible)} == {torch.bool}


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_the_precision_that_comes_in_goes_out(two_classes, entry, precision):
    found = two_classes.method(entry).explain(two_classes.x[:8].to(precision))
    assert found.x_cf.dtype == found.x.dtype == precision
    assert found.valid.any()


def test_verdicts_are_what_the_models_say_of_the_returned_numbers(three_classes, entry):
    found = three_classes.method(entry).explain(three_classes.x[:20], "runner_up")
    exact = found.x_cf.double()
    assert torch.equal(found.y_cf, predict(three_classes.classifier, exact))
    assert torch.equal(found.valid, found.y_cf == found.y_target)
    log_prob = three_classes.plausibility.log_prob(exact, found.y_target)
    torch.testing.assert_close(found.log_prob, log_prob)
    torch.testing.assert_close(found.log_delta, three_classes.plausibility.log_delta(found.y_target))
    assert torch.equal(found.plausible, three_classes.plausibility.score(exact, found.y_target) >= 0)


def test_rows_and_targets_are_left_as_they_were(two_classes, entry):
    x, y_target = two_classes.x[:6].clone(), torch.ones(6, dtype=torch.long, device=two_classes.x.device)
    two_classes.method(entry).explain(x, y_target)
    assert torch.equal(x, two_classes.x[:6])
    assert (y_target == 1).all()


def test_the_same_question_gets_the_same_answer_and_touches_no_random_numbers(two_classes, entry):
    method, state = two_classes.method(entry), torch.get_rng_state()
    first, second = method.explain(two_classes.x[:10]), method.explain(two_classes.x[:10])
    assert_same(first, second, atol=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_row_that_is_already_as_wanted_and_plausible_stays_where_it_is(three_classes, entry):
    centres = torch.stack([three_classes.x[three_classes.y == k].mean(dim=0) for k in range(3)])
    y_target = torch.arange(3, device=centres.device)
    found = three_classes.method(entry).explain(centres, y_target)
    assert found.feasible.all()
    assert (l2_distance(found.x_cf, centres) == 0).all()


def test_seconds_are_shares_that_add_up_to_the_time_spent(two_classes, entry):
    found = two_classes.method(entry, chunk_size=8).explain(two_classes.x[:20])
    for seconds in (found.seconds, found.cpu_seconds):
        assert seconds.shape == (20,)
        assert (seconds > 0).all()
        assert [len(part.unique()) for part in seconds.split(8)] == [1, 1, 1]
    assert 0 < float(found.seconds.sum()) < 60


def test_gradients_are_counted(two_classes, entry):
    found = two_classes.method(entry).explain(two_classes.x[:5])
    assert ((found.gradients > 0) == entry.gradients).all()


def test_repr_names_the_method_and_its_settings_and_no_training_rows(two_classes, entry):
    method = two_classes.method(entry)
    assert repr(method).startswith(f"{type(method).__name__}(classifier=LinearClassifier(")
    assert "chunk_size=None" in repr(method)
    assert "tensor(" not in repr(method)
    assert len(repr(method)) < 1000


def test_the_label_of_tables_is_a_word(entry, two_classes):
    assert two_classes.method(entry).label.replace("-", "").isidentifier()
