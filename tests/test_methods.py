"""The contract of every method, whatever its search: shapes, targets, rows without answer, errors, timing."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from plausiflow.classifiers import LinearClassifier, TorchClassifier, predict
from plausiflow.counterfactuals import Counterfactuals
from plausiflow.densities import GMM, ConditionalFlow, Thresholded
from plausiflow.errors import InvalidInputError, ModelError, ShapeError
from plausiflow.losses import l2_distance
from plausiflow.methods import (
    CBCE,
    CEGP,
    CEM,
    FACE,
    PPCEF,
    Artelt,
    CeFlow,
    DiCE,
    Diffeomorphic,
    Method,
    Nearest,
    NearestDense,
    Wachter,
)
from plausiflow.methods.fista import FISTA
from plausiflow.protocols import Solution
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow.training import Training

QUICK_FISTA = FISTA(rounds=3, steps=60)
QUICK_ADAM = PenaltyAdam(steps=120, patience=120, learning_rate=0.02)


@dataclass(frozen=True)
class Entry:
    """How a method is made from ``classifier``, ``plausibility`` and ``chunk_size``, and what it is held to.

    Attributes:
        make: The method.
        feasible: Least share of feasible rows on an easy problem; none of methods that know no density.
        gradients: Whether it searches with gradients.
        linear: Whether it is for linear classifiers only.
    """

    make: Callable[..., Method]
    feasible: float = 1.0
    gradients: bool = True
    linear: bool = False


@cache
def flow_of_the_square():
    """A flow that knows no classes, of rows around the centres of the three classes below."""
    x = setting([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]], torch.float64, "cpu").x
    training = Training(epochs=60, learning_rate=5e-3)
    flow = ConditionalFlow(architecture="realnvp", transforms=4, hidden=(16, 16), training=training)
    return flow.fit(x, torch.zeros(len(x), dtype=torch.long), n_classes=1)


METHODS = {
    "PPCEF with SQP": Entry(PPCEF),
    "PPCEF with SQP, quality": Entry(lambda **models: PPCEF(**models, solver=SQP(mode="quality"))),
    "PPCEF with PenaltyAdam": Entry(lambda **models: PPCEF(**models, solver=QUICK_ADAM), feasible=0.9),
    "NNCE": Entry(Nearest, feasible=0.0, gradients=False),
    "NNCE-dense": Entry(NearestDense, gradients=False),
    "CBCE": Entry(CBCE, feasible=0.0, gradients=False),
    "WACH": Entry(Wachter, feasible=0.0),
    "DiCE": Entry(lambda **models: DiCE(**models, steps=100), feasible=0.0),
    "CEM": Entry(lambda **models: CEM(**models, solver=QUICK_FISTA), feasible=0.0),
    "CEGP": Entry(lambda **models: CEGP(**models, solver=QUICK_FISTA), feasible=0.0),
    "FACE": Entry(lambda **models: FACE(**models, neighbours=80), feasible=0.0, gradients=False),
    "ARTELT": Entry(lambda **models: Artelt(**models, components=[2]), feasible=0.25, linear=True),
    "Diffeomorphic": Entry(
        lambda **models: Diffeomorphic(**models, flow=flow_of_the_square(), learning_rate=0.1, steps=200),
        feasible=0.0,
    ),
    "CeFlow": Entry(
        lambda **models: CeFlow(**models, flow=flow_of_the_square(), furthest=3.0, grid=30),
        feasible=0.0,
        gradients=False,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Rows, their classes, and the models that a method gets."""

    x: torch.Tensor
    y: torch.Tensor
    classifier: LinearClassifier
    plausibility: Thresholded

    def method(self, entry: Entry, **changed) -> Method:
        models = {"classifier": self.classifier, "plausibility": self.plausibility} | changed
        return entry.make(**models).fit(self.x, self.y)


def setting(centres, dtype, device, n=150):
    """Round clouds around the centres, in [0, 1] or little beside; a point belongs to the nearest centre."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor(centres, dtype=torch.float64)
    y = torch.arange(n) % len(centres)
    x = (centres[y] + 0.08 * torch.randn(n, 2, generator=generator, dtype=torch.float64)).to(dtype)
    # Twenty times the log-odds of two unit clouds: the nearest centre wins, with some certainty.
    classifier = LinearClassifier.from_weights(20 * centres, -10 * (centres**2).sum(dim=1))
    plausibility = Thresholded(density=GMM(components=1).fit(x, y)).fit(x, y)
    return Setting(x=x.to(device), y=y.to(device), classifier=classifier, plausibility=plausibility)


@pytest.fixture(scope="module")
def two_classes(dtype, device):
    return setting([[0.2, 0.3], [0.7, 0.7]], dtype, device)


@pytest.fixture(scope="module")
def three_classes(dtype, device):
    return setting([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]], dtype, device)


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def entry(request):
    return request.param


def assert_same(found, expected, atol=1e-5):
    """The same rows found, with the same verdicts, at the same places."""
    assert torch.equal(found.found, expected.found)
    assert torch.equal(found.y_target, expected.y_target)
    assert torch.equal(found.feasible, expected.feasible)
    torch.testing.assert_close(found.x_cf, expected.x_cf, rtol=0, atol=atol, equal_nan=True)


def assert_refused(method, x):
    """No row is found, and the result says why."""
    found = method.explain(x, 1)
    assert not found.found.any()
    assert type(method.classifier).__name__ in found.reason


def assert_consistent(found):
    """A row that was not found is NaN in every entry and has no verdict; a row that was found has no NaN."""
    missing = ~found.found
    assert torch.equal(torch.isnan(found.x_cf).any(dim=1), missing)
    assert torch.equal(torch.isnan(found.x_cf).all(dim=1), missing)
    assert (found.y_cf[missing] == -1).all()
    assert (found.y_cf[found.found] >= 0).all()
    assert not found.valid[missing].any()
    assert not found.plausible[missing].any()
    assert torch.isnan(found.log_prob[missing]).all()


# ---------------------------------------------------------------- what comes back


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


# ---------------------------------------------------------------- rows: none, one, many, unusable


def test_no_rows_give_no_answers(three_classes, entry):
    method, nothing = three_classes.method(entry), three_classes.x[:0]
    for target in ("runner_up", "paper", 1, torch.zeros(0, dtype=torch.long)):
        found = method.explain(nothing, target)
        assert len(found) == 0
        assert found.x_cf.shape == (0, 2)
        assert found.x_cf.dtype == nothing.dtype


def test_one_row_is_explained_as_in_a_table(two_classes, entry):
    method = two_classes.method(entry)
    together = method.explain(two_classes.x[:9])
    for row in (0, 4, 8):
        assert_same(method.explain(two_classes.x[row : row + 1]), together[row : row + 1])


@pytest.mark.parametrize("chunk_size", [1, 4, 11])
def test_chunks_give_the_answers_of_the_whole(three_classes, entry, chunk_size):
    x, y_target = three_classes.x[:10], torch.arange(10, device=three_classes.x.device) % 3
    whole = three_classes.method(entry).explain(x, y_target)
    assert_same(three_classes.method(entry, chunk_size=chunk_size).explain(x, y_target), whole)


def test_the_order_of_the_rows_does_not_matter(three_classes, entry):
    method, order = three_classes.method(entry), torch.randperm(20)
    x = three_classes.x[:20]
    assert_same(method.explain(x[order], "runner_up"), method.explain(x, "runner_up")[order])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_rows_that_are_not_numbers_are_not_found_and_do_not_disturb_the_others(two_classes, entry, bad):
    x = two_classes.x[:10].clone()
    x[2, 1] = x[7] = bad
    method = two_classes.method(entry)
    found = method.explain(x, 1)
    usable = torch.ones(10, dtype=torch.bool, device=x.device)
    usable[[2, 7]] = False
    assert torch.equal(found.found, usable)
    assert_consistent(found)
    assert torch.equal(found.x.isnan(), x.isnan())
    assert (found.gradients[~usable] == 0).all()
    assert_same(found[usable], method.explain(x[usable], 1))


def test_a_table_of_unusable_rows_has_no_answers(two_classes, entry):
    found = two_classes.method(entry).explain(torch.full_like(two_classes.x[:3], torch.nan))
    assert not found.found.any()
    assert_consistent(found)


def test_nan_is_exactly_not_found_where_a_class_is_out_of_reach(three_classes, entry):
    # No point is as dense as class 1 has to be: a method returns nothing there, or an implausible point.
    thresholds = torch.tensor([0.0, 1e6, 0.0], dtype=torch.float64)
    unreachable = Thresholded.at(three_classes.plausibility.density, thresholds, 3)
    y_target = torch.arange(12, device=three_classes.x.device) % 3
    found = three_classes.method(entry, plausibility=unreachable).explain(three_classes.x[:12], y_target)
    assert_consistent(found)
    assert not found.plausible[y_target == 1].any()
    assert found.feasible[y_target != 1].double().mean() >= entry.feasible - 0.1


def test_rows_that_carry_gradients_are_explained_like_others(two_classes, entry):
    method, x = two_classes.method(entry), two_classes.x[:4]
    found = method.explain(x.clone().requires_grad_(True))
    assert not found.x_cf.requires_grad
    assert_same(found, method.explain(x))


def test_a_search_does_its_own_gradients_where_the_caller_has_switched_them_off(two_classes, entry):
    method, x = two_classes.method(entry), two_classes.x[:4]
    with torch.no_grad():
        found = method.explain(x)
    assert_same(found, method.explain(x))


# ---------------------------------------------------------------- targets


def test_opposite_is_the_other_of_two_classes(two_classes, entry):
    found = two_classes.method(entry).explain(two_classes.x[:10], "opposite")
    assert torch.equal(found.y, predict(two_classes.classifier, two_classes.x[:10]))
    assert torch.equal(found.y_target, 1 - found.y)


def test_opposite_is_what_is_asked_for_by_default(two_classes, entry):
    method = two_classes.method(entry)
    assert_same(method.explain(two_classes.x[:4]), method.explain(two_classes.x[:4], "opposite"), atol=0)


def test_opposite_among_three_classes_is_an_error_that_says_what_to_ask_for(three_classes, entry):
    with pytest.raises(InvalidInputError, match=r"two classes; this one has 3.*'runner_up' or name a class"):
        three_classes.method(entry).explain(three_classes.x[:2])


def test_runner_up_is_the_second_most_probable_class(three_classes, entry):
    x = three_classes.x[:30]
    found = three_classes.method(entry).explain(x, "runner_up")
    for row, y, y_target in zip(x, found.y.tolist(), found.y_target.tolist(), strict=True):
        logits = three_classes.classifier.logits(row[None].double())[0].tolist()
        assert [y, y_target] == sorted(range(3), key=lambda k, logits=logits: -logits[k])[:2]


def test_the_papers_target_is_one_minus_the_predicted_class_without_its_sign(three_classes, entry):
    found = three_classes.method(entry).explain(three_classes.x[:30], "paper")
    assert found.y.unique().tolist() == [0, 1, 2]
    assert found.y_target.tolist() == [{0: 1, 1: 0, 2: 1}[y] for y in found.y.tolist()]


@pytest.mark.parametrize("one", [2, np.int64(2), torch.tensor(2), torch.tensor(2).int()], ids=repr)
def test_one_class_is_wanted_of_every_row(three_classes, entry, one):
    found = three_classes.method(entry, chunk_size=3).explain(three_classes.x[:5], one)
    assert found.y_target.tolist() == [2] * 5
    assert found.y_target.dtype == torch.long


@pytest.mark.parametrize("whole", [torch.long, torch.int32, torch.uint8])
def test_every_row_has_a_wanted_class_of_its_own(three_classes, entry, whole):
    wanted = torch.tensor([2, 0, 1, 1, 2, 0, 0], dtype=whole)
    found = three_classes.method(entry, chunk_size=3).explain(three_classes.x[:7], wanted)
    assert found.y_target.tolist() == wanted.tolist()
    assert found.y_target.device == three_classes.x.device
    assert found.feasible.double().mean() >= entry.feasible - 0.1


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        (3, InvalidInputError, r"between 0 and 2, the model's classes; got 3 to 3"),
        (-1, InvalidInputError, r"between 0 and 2.*got -1 to -1"),
        (torch.tensor([0, 1, 2, 5]), InvalidInputError, r"between 0 and 2.*got 0 to 5"),
        (torch.tensor([0.0, 1.0, 2.0, 0.0]), InvalidInputError, r"class numbers; got .*float.*`\.long\(\)`"),
        (torch.tensor([True, False, True, True]), InvalidInputError, r"whole class numbers; got torch.bool"),
        (1.0, InvalidInputError, r"whole class numbers; got torch.float"),
        (True, InvalidInputError, r"whole class numbers; got torch.bool"),
        (torch.tensor([0, 1, 2]), ShapeError, r"must have shape \(4,\), one class per row; got \(3,\)"),
        (torch.tensor([[0], [1], [2], [0]]), ShapeError, r"must have shape \(4,\).*got \(4, 1\)"),
        (torch.tensor([1]), ShapeError, r"must have shape \(4,\).*got \(1,\)"),
        ("other", InvalidInputError, r"'opposite', 'runner_up', 'paper', a class.*got 'other'"),
    ],
    ids=str,
)
def test_targets_that_make_no_sense_are_errors(three_classes, entry, target, error, text):
    with pytest.raises(error, match=text):
        three_classes.method(entry).explain(three_classes.x[:4], target)


def test_three_classes_are_reached_from_anywhere(three_classes, entry):
    method, x = three_classes.method(entry), three_classes.x[:60]
    for target in ("runner_up", 0, 1, 2):
        found = method.explain(x, target)
        assert found.feasible.double().mean() >= entry.feasible, target
        assert_consistent(found)


# ---------------------------------------------------------------- tables that make no sense


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (lambda x: (100 * x).long(), InvalidInputError, r"float tensor; got torch.int64.*`\.float\(\)`"),
        (lambda x: x > 0, InvalidInputError, r"float tensor; got torch.bool"),
        (lambda x: x[0], ShapeError, r"shape \(n, d\); got \(2,\).*`x\[None\]`"),
        (lambda x: x[None], ShapeError, r"shape \(n, d\); got \(1, 4, 2\)"),
        (lambda x: x[:, :0], ShapeError, r"shape \(n, d\); got \(4, 0\)"),
        (lambda x: torch.cat([x, x], dim=1), ShapeError, r"shape \(n, 2\), as when .* fitted; got \(4, 4\)"),
        (lambda x: x[:, :1], ShapeError, r"shape \(n, 2\), as when .* fitted; got \(4, 1\)"),
        (lambda x: x.cpu().numpy(), ShapeError, r"tensor of shape \(n, d\); got ndarray"),
        (lambda x: x.tolist(), ShapeError, r"tensor of shape \(n, d\); got list"),
    ],
    ids=["integers", "booleans", "one row", "3 dimensions", "no columns", "more", "fewer", "array", "list"],
)
def test_tables_that_make_no_sense_are_errors_with_a_remedy(two_classes, entry, spoil, error, text):
    with pytest.raises(error, match=text):
        two_classes.method(entry).explain(spoil(two_classes.x[:4]))


# ---------------------------------------------------------------- models that users bring


def module_with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 2))


def test_a_module_in_training_mode_is_searched_without_dropout_and_stays_in_training_mode(two_classes, entry):
    module = module_with_dropout().train()
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    method = two_classes.method(entry, classifier=TorchClassifier(module, n_classes=2))
    first, second = method.explain(two_classes.x[:8]), method.explain(two_classes.x[:8])
    assert_same(first, second, atol=0)
    assert all(part.training for part in module.modules())
    assert all(value.requires_grad and value.grad is None for value in module.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())

    quiet = two_classes.method(entry, classifier=TorchClassifier(module_with_dropout().eval(), n_classes=2))
    assert_same(first, quiet.explain(two_classes.x[:8]), atol=0)


def test_a_module_that_raises_is_a_model_error_that_quotes_it(two_classes, entry):
    class Broken(nn.Module):
        def forward(self, x):
            raise KeyError("weights were lost")

    broken = TorchClassifier(Broken(), n_classes=2)
    method = entry.make(classifier=broken, plausibility=two_classes.plausibility)
    with pytest.raises(ModelError, match=r"KeyError.*weights were lost"):
        method.explain(two_classes.x[:2])


def test_a_module_that_raises_in_the_middle_of_a_search_is_a_model_error_too(two_classes, entry):
    class Fickle(nn.Module):
        calls = 0

        def forward(self, x):
            Fickle.calls += 1
            if Fickle.calls > 1:
                raise RuntimeError("no more")
            return torch.stack([-x.sum(dim=1), x.sum(dim=1) - 1.0], dim=1)

    method = two_classes.method(entry)
    method.classifier = TorchClassifier(Fickle(), n_classes=2)
    if entry.linear:
        assert_refused(method, two_classes.x[:2])
        return
    with pytest.raises(ModelError, match="no more"):
        method.explain(two_classes.x[:2])


def test_a_module_without_gradients_is_a_model_error_with_a_remedy(two_classes, entry):
    class Detached(nn.Module):
        def forward(self, x):
            return torch.stack([-x.sum(dim=1), x.sum(dim=1) - 1.0], dim=1).detach()

    classifier = TorchClassifier(Detached(), n_classes=2)
    if entry.linear:
        assert_refused(entry.make(classifier=classifier), two_classes.x[:2])
        return
    if not entry.gradients:
        assert two_classes.method(entry, classifier=classifier).explain(two_classes.x[:2]).valid.all()
        return
    method = two_classes.method(entry)
    method.classifier = classifier
    with pytest.raises(ModelError, match=r"no gradient.*Remove `detach\(\)`"):
        method.explain(two_classes.x[:2])


class ScoreOnly:
    """What a user may bring: near the middle is plausible; there is no log-density."""

    def score(self, x, y):
        return 0.5 - (x - 0.5).square().sum(dim=1)


def test_a_plausibility_without_log_density_will_do(two_classes, entry):
    found = two_classes.method(entry, plausibility=ScoreOnly()).explain(two_classes.x[:20])
    assert found.feasible.double().mean() >= entry.feasible
    assert torch.isnan(found.log_prob).all()
    assert torch.isnan(found.log_delta).all()


# ---------------------------------------------------------------- what the base alone does


@dataclass(kw_only=True, eq=False)
class Given(Method):
    """Returns what it is given, for the rows it is asked about."""

    label = "Given"
    answer: torch.Tensor
    path: torch.Tensor | None = None

    def _search(self, x, y_target):
        self.asked = x
        return Solution(x=self.answer, gradients=torch.ones(len(x), dtype=torch.long), path=self.path)


def test_a_method_without_a_search_cannot_be_made(two_classes):
    with pytest.raises(TypeError, match="_search"):
        Method(classifier=two_classes.classifier)


def test_an_answer_with_one_entry_that_is_not_a_number_is_no_answer():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    answer = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [1.0, torch.inf], [-1.0, 0.0]])
    found = Given(classifier=classifier, answer=answer).explain(torch.full((4, 2), -1.0))
    assert found.found.tolist() == [True, False, False, True]
    assert found.valid.tolist() == [True, False, False, False]
    assert found.y_cf.tolist() == [1, -1, -1, 0]
    assert_consistent(found)


def test_without_a_plausibility_nothing_is_called_plausible():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    found = Given(classifier=classifier, answer=torch.ones(3, 2)).explain(-torch.ones(3, 2))
    assert found.valid.all()
    assert not found.plausible.any()
    assert torch.isnan(found.log_prob).all()


def test_a_search_is_only_asked_about_usable_rows_and_its_path_is_spread_over_all():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    x = torch.tensor([[-1.0, 0.0], [torch.nan, 0.0], [-2.0, 0.0]])
    path = torch.rand(5, 2, 2)
    method = Given(classifier=classifier, answer=torch.ones(2, 2), path=path)
    found = method.explain(x)
    assert torch.equal(method.asked, x[[0, 2]])
    assert found.path.shape == (5, 3, 2)
    assert torch.equal(found.path[:, [0, 2]], path)
    assert torch.isnan(found.path[:, 1]).all()


def test_fitting_a_method_that_learns_nothing_returns_it():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    method = Given(classifier=classifier, answer=torch.ones(1, 2))
    assert method.fit(torch.rand(4, 2), torch.zeros(4, dtype=torch.long)) is method


# ---------------------------------------------------------------- what only PPCEF does


def test_the_papers_settings_are_those_of_the_published_runs(two_classes):
    models = {"classifier": two_classes.classifier, "plausibility": two_classes.plausibility}
    for binary_linear, steps, patience, loss in ((True, 1000, 100, "hinge"), (False, 2000, 500, "published")):
        method = PPCEF.paper(**models, binary_linear=binary_linear)
        solver = method.solver
        assert isinstance(solver, PenaltyAdam)
        assert (solver.steps, solver.patience, solver.keep) == (steps, patience, "last")
        assert (solver.weight, solver.learning_rate) == (100.0, 5e-3)
        assert (method.validity_loss, method.margin) == (loss, 0.02)
        assert method.lower is None
        assert method.upper is None


@pytest.mark.parametrize("loss", ["hinge", "cross_entropy", "published"])
def test_every_validity_loss_leads_to_the_wanted_class(three_classes, loss):
    models = {"classifier": three_classes.classifier, "plausibility": three_classes.plausibility}
    method = PPCEF(**models, solver=QUICK_ADAM, validity_loss=loss)
    found = method.explain(three_classes.x[:30], "runner_up")
    assert found.valid.double().mean() > 0.9


def test_the_wanted_class_wins_by_the_margin(three_classes):
    models = {"classifier": three_classes.classifier, "plausibility": three_classes.plausibility}
    method = PPCEF(**models, margin=0.3).fit(three_classes.x, three_classes.y)
    found = method.explain(three_classes.x[:30], "runner_up")
    proba = three_classes.classifier.logits(found.x_cf.double()).softmax(dim=1)
    wanted = proba.gather(1, found.y_target[:, None])[:, 0]
    rival = proba.scatter(1, found.y_target[:, None], 0.0).amax(dim=1)
    assert found.feasible.all()
    assert (wanted - rival >= 0.3).all()
