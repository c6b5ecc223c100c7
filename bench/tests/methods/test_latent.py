"""Moves in latent space: the flow's maps, then Diffeomorphic and CeFlow against linear algebra."""

import math

import pytest
import torch

from plausiflow.core.losses import l2_distance
from plausiflow.core.prediction import predict
from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow
from plausiflow.densities.flows import ARCHITECTURES
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.models import LinearClassifier, MLPClassifier
from plausiflow_bench.methods.latent import CeFlow, Diffeomorphic
from plausiflow_bench.published.runs import PublishedRun

BRIEF = Training(epochs=3)


class AffineFlow:
    """The map x = A z + b, one per class."""

    def __init__(self, *maps):
        self.maps, self.n_classes_ = maps, len(maps)

    def _of(self, y):
        return (torch.stack([part[i] for part in self.maps])[y] for i in (0, 1))

    def to_latent(self, x, y):
        matrix, shift = self._of(y)
        return torch.linalg.solve(matrix, x - shift)

    def from_latent(self, z, y):
        matrix, shift = self._of(y)
        return (matrix @ z[..., None])[..., 0] + shift


def affine(d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.eye(d) + 0.5 * torch.randn(d, d, generator=generator), torch.randn(d, generator=generator)


def line(d, seed=5):
    """Return a sigmoid model."""
    generator = torch.Generator().manual_seed(seed)
    return LinearClassifier.from_weights(torch.randn(1, d, generator=generator), torch.zeros(1))


def clouds(n_classes=2, d=2, n=120):
    """Return round clusters, and a linear model that separates them."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.rand(n_classes, d, generator=generator)
    y = torch.arange(n) % n_classes
    x = centres[y] + 0.1 * torch.randn(n, d, generator=generator)
    return x, y, LinearClassifier.from_weights(20 * centres, -10 * (centres**2).sum(dim=1))


def norm(x):
    return torch.linalg.vector_norm(x, dim=1, keepdim=True)


# ---------------------------------------------------------------- the flow's maps


@pytest.fixture(scope="module", params=ARCHITECTURES)
def flow(request):
    x, y, _ = clouds(d=3)
    return ConditionalFlow(architecture=request.param, hidden=(16, 16), training=BRIEF).fit(x, y)


def test_a_row_goes_to_its_latent_and_back(flow):
    x, y = 2 * torch.rand(50, 3) - 0.5, torch.arange(50) % 2
    torch.testing.assert_close(flow.from_latent(flow.to_latent(x, y), y), x, rtol=0, atol=1e-6)
    z = 2 * torch.randn(50, 3)
    torch.testing.assert_close(flow.to_latent(flow.from_latent(z, y), y), z, rtol=0, atol=1e-6)


def test_the_latent_explains_the_density(flow):
    x, y = torch.rand(4, 3), torch.tensor([0, 1, 1, 0])
    z = flow.to_latent(x, y)
    jacobian = torch.autograd.functional.jacobian(lambda rows: flow.to_latent(rows, y).sum(dim=0), x)
    log_det = torch.linalg.slogdet(jacobian.transpose(0, 1)).logabsdet
    expected = log_det - 0.5 * (z**2).sum(dim=1) - 1.5 * math.log(2 * math.pi)
    torch.testing.assert_close(flow.log_prob(x, y), expected)


def test_gradients_flow_through_both_maps(flow):
    values, y = torch.rand(3, 3), torch.tensor([0, 1, 0])
    assert torch.autograd.gradcheck(lambda x: flow.to_latent(x, y), values.clone().requires_grad_(True))
    assert torch.autograd.gradcheck(lambda z: flow.from_latent(z, y), values.clone().requires_grad_(True))


def test_the_maps_follow_precision_and_know_empty_tables(flow):
    no_class = torch.zeros(0, dtype=torch.long)
    assert (
        flow.to_latent(torch.rand(0, 3), no_class).shape
        == flow.from_latent(torch.rand(0, 3), no_class).shape
        == (0, 3)
    )
    x, y = torch.rand(5, 3).float(), torch.zeros(5, dtype=torch.long)
    assert flow.to_latent(x, y).dtype == flow.from_latent(x, y).dtype == torch.float32
    with pytest.raises(ShapeError, match=r"shape \(n, 3\)"):
        flow.from_latent(torch.rand(5, 2), y)


def test_a_flow_with_columns_as_context_has_no_map_of_whole_rows():
    x, y, _ = clouds(d=3)
    flow = ConditionalFlow(given=(1,), training=BRIEF).fit(x, y)
    with pytest.raises(InvalidInputError, match=r"context columns.*got `given=\(1,\)`.*without `given`"):
        flow.to_latent(x, y)


# ---------------------------------------------------------------- Diffeomorphic


@pytest.mark.parametrize("d", [2, 10, 50])
def test_the_first_step_goes_along_the_pulled_back_gradient(d):
    matrix, shift = affine(d)
    model = line(d)
    x = torch.randn(8, d)
    method = Diffeomorphic(
        classifier=model, flow=AffineFlow((matrix, shift)), optimiser="sgd", learning_rate=1e3, steps=1
    )
    found = method.explain(x)
    assert found.valid.all()
    assert (found.gradients == 2).all()
    direction = (matrix @ matrix.T @ model.weight[1])[None] * (2 * found.y_target - 1)[:, None]
    moved = found.x_cf - x
    torch.testing.assert_close(moved / norm(moved), direction / norm(direction), rtol=0, atol=1e-6)


def test_the_descent_is_that_of_torchs_adam():
    matrix, shift = affine(3)
    model = line(3)
    flow, no_class = AffineFlow((matrix, shift)), torch.zeros(1, dtype=torch.long)
    found = Diffeomorphic(classifier=model, flow=flow).explain(torch.randn(6, 3))
    for row in range(6):
        z = flow.to_latent(found.x[row : row + 1], no_class).requires_grad_(True)
        optimiser = torch.optim.Adam([z], lr=0.05)
        steps = 0
        while True:
            logits = model.logits(flow.from_latent(z, no_class))
            if logits.softmax(dim=1)[0, found.y_target[row]] >= 0.52:
                break
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(logits, found.y_target[row : row + 1]).backward()
            optimiser.step()
            steps += 1
        torch.testing.assert_close(found.x_cf[row : row + 1], flow.from_latent(z, no_class).detach())
        assert int(found.gradients[row]) == steps + 1


def test_a_flow_that_knows_classes_is_asked_for_the_wanted_one():
    maps = affine(3, seed=1), affine(3, seed=2)
    model, x = line(3), torch.randn(20, 3)
    y_target = 1 - predict(model, x)
    found = Diffeomorphic(classifier=model, flow=AffineFlow(*maps)).explain(x)
    for k in (0, 1):
        own = Diffeomorphic(classifier=model, flow=AffineFlow(maps[k])).explain(x[y_target == k])
        torch.testing.assert_close(found.x_cf[y_target == k], own.x_cf)


def test_a_row_that_has_not_arrived_has_no_answer():
    model = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    flow = AffineFlow((torch.eye(2), torch.zeros(2)))
    x = torch.tensor([[-0.1, 0.0], [-9.0, 0.0], [1.0, 0.0]])
    found = Diffeomorphic(classifier=model, flow=flow, steps=20).explain(x, 1)
    assert found.found.tolist() == [True, False, True]
    assert torch.equal(found.x_cf[2], x[2])
    assert found.gradients.tolist()[1:] == [21, 1]


def test_a_learned_flow_leads_a_network_to_every_class():
    x, y, _ = clouds(n_classes=3)
    model = MLPClassifier(hidden=(16,), training=Training(epochs=60, learning_rate=3e-2)).fit(x, y)
    flow = ConditionalFlow(architecture="realnvp", training=BRIEF).fit(x, torch.zeros_like(y), n_classes=1)
    for method in (
        Diffeomorphic(classifier=model, flow=flow),
        CeFlow(classifier=model, flow=flow, furthest=3.0, grid=60),
    ):
        found = method.fit(x, y).explain(x[:30], "runner_up")
        assert found.valid.double().mean() > 0.9


# ---------------------------------------------------------------- CeFlow


@pytest.mark.parametrize("d", [2, 10])
def test_an_affine_flow_moves_along_the_difference_of_the_classes_means(d):
    model, x = line(d), torch.randn(200, d)
    y = predict(model, x)
    method = CeFlow(classifier=model, flow=AffineFlow(affine(d)), furthest=2.0, grid=40).fit(x, y)
    found = method.explain(x[:30])
    means = torch.stack([x[y == k].mean(dim=0) for k in (0, 1)])
    towards = means[found.y_target] - means[found.y]
    tried = torch.linspace(0, 2.0, 41)[:, None, None] * towards + x[:30]
    wins = model.logits(tried.reshape(-1, d)).softmax(dim=1).reshape(41, 30, 2)
    wins = wins.gather(2, found.y_target.expand(41, 30)[..., None])[..., 0] >= 0.52
    assert torch.equal(found.found, wins.any(dim=0))
    first = wins.double().argmax(dim=0)
    expected = tried[first, torch.arange(30)]
    torch.testing.assert_close(found.x_cf[found.found], expected[found.found], rtol=0, atol=1e-12)
    assert found.found.double().mean() > 0.8


def test_the_closest_of_all_valid_moves_is_taken_not_the_first():
    class Bent(AffineFlow):
        """A map under which the decoded path leaves and returns."""

        def from_latent(self, z, y):
            return torch.stack([z[:, 0], 4 * torch.sin(math.pi * z[:, 0])], dim=1)

        def to_latent(self, x, y):
            return torch.stack([x[:, 0], torch.zeros_like(x[:, 0])], dim=1)

    flow = Bent((torch.eye(2), torch.zeros(2)))
    model = LinearClassifier.from_weights(torch.tensor([[20.0, 0.0]]), torch.tensor([-6.0]))
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    found = CeFlow(classifier=model, flow=flow).fit(x, torch.tensor([0, 1])).explain(x[:1])
    torch.testing.assert_close(found.x_cf, x[1:], atol=1e-12, rtol=0)


def test_classes_are_those_that_the_model_decides_not_the_labels():
    model, x = line(2), torch.randn(100, 2)
    flow, shuffled = AffineFlow(affine(2)), torch.arange(100) % 2
    answers = [
        CeFlow(classifier=model, flow=flow).fit(x, y).explain(x[:20]) for y in (predict(model, x), shuffled)
    ]
    assert torch.equal(answers[0].x_cf.nan_to_num(), answers[1].x_cf.nan_to_num())


def test_with_a_flow_that_knows_classes_the_means_are_those_under_the_wanted_ones_map():
    maps = affine(2, seed=1), affine(2, seed=2)
    model, x = line(2), torch.randn(100, 2)
    y = predict(model, x)
    found = CeFlow(classifier=model, flow=AffineFlow(*maps)).fit(x, y).explain(x)
    for k in (0, 1):
        own = CeFlow(classifier=model, flow=AffineFlow(maps[k])).fit(x, y).explain(x[y != k])
        torch.testing.assert_close(found.x_cf[y != k], own.x_cf, equal_nan=True)


def test_a_class_that_no_class_is_decided_as_is_out_of_reach():
    x, _, model = clouds(n_classes=3)
    y = predict(model, x)
    flow = AffineFlow((torch.eye(2), torch.zeros(2)))
    method = CeFlow(classifier=model, flow=flow).fit(x[y != 2], y[y != 2])
    assert not method.explain(x[y == 0][:5], 2).found.any()
    assert method.explain(x[y == 0][:5], 1).found.any()
    surely_two = x[model.logits(x).softmax(dim=1)[:, 2] > 0.9][:1]
    assert torch.equal(method.explain(surely_two, 2).x_cf, surely_two)


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("method", [Diffeomorphic, CeFlow])
def test_without_a_fit_there_is_an_error(method):
    with pytest.raises(NotFittedError, match="Call `fit"):
        method(classifier=line(2)).explain(torch.rand(2, 2))


@pytest.mark.parametrize(
    ("method", "wrong", "text"),
    [
        (Diffeomorphic, {"optimiser": "lbfgs"}, "'adam' or 'sgd'; got 'lbfgs'"),
        (Diffeomorphic, {"steps": 0}, "`steps` must be at least 1; got 0"),
        (Diffeomorphic, {"architecture": "glow"}, "one of maf, nsf, realnvp, nice; got 'glow'"),
        (CeFlow, {"margin": 0.5}, r"in \[0, 0.5\); got 0.5"),
        (CeFlow, {"grid": 0}, "`grid` must be at least 1"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(method, wrong, text):
    with pytest.raises(InvalidInputError, match=text):
        method(classifier=line(2), **wrong)


@pytest.mark.parametrize("method", [Diffeomorphic, CeFlow])
def test_a_constant_feature_duplicated_rows_and_ten_classes_are_no_trouble(method, monkeypatch):
    monkeypatch.setattr("plausiflow.densities.flows.FLOW_TRAINING", BRIEF)
    x, y, model = clouds(n_classes=10, d=3, n=60)
    x = torch.cat([x[:40], x[:20]])
    x[:, 1] = 0.5
    found = method(classifier=model).fit(x, y).explain(x[:12], "runner_up")
    assert found.found.any()
    assert torch.equal(found.valid, found.found)


@pytest.mark.parametrize("method", [Diffeomorphic, CeFlow])
def test_one_feature_is_enough(method, monkeypatch):
    monkeypatch.setattr("plausiflow.densities.flows.FLOW_TRAINING", BRIEF)
    x = torch.cat([torch.randn(40, 1), torch.randn(40, 1) + 3])
    model = LinearClassifier.from_weights(torch.tensor([[2.0]]), torch.tensor([-3.0]))
    found = method(classifier=model).fit(x, predict(model, x)).explain(x[:10])
    assert found.valid.double().mean() > 0.7


@pytest.mark.slow
@pytest.mark.paper
@pytest.mark.parametrize(("name", "farthest"), [("moons", 0.42), ("law", 0.22), ("wine", 0.55)])
def test_on_published_models_rows_arrive_and_stay_near(reference_directory, name, farthest):
    reference = PublishedRun.load(name, reference_directory)
    model = reference.classifier("lr")
    learned = Diffeomorphic(classifier=model).fit(reference.x_train, reference.y_train)
    straight = CeFlow(classifier=model, flow=learned.flow_).fit(reference.x_train, reference.y_train)
    for method, least in ((learned, 1.0), (straight, 0.85)):
        found = method.explain(reference.x_test, "paper")
        assert float(found.found.double().mean()) >= least
        assert found.valid[found.found].all()
        assert float(l2_distance(found.x_cf, found.x)[found.found].mean()) < farthest
