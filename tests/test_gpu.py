"""The same code on CUDA: counterfactuals stay on the device, equal those of the CPU, and use CUDA graphs."""

import pytest
import torch

import plausiflow as pf
from plausiflow.core import batches
from plausiflow.core.metrics import Context, evaluate
from plausiflow.core.training import Training
from plausiflow.densities import GMM, KDE, ConditionalFlow, CrossFitEnsemble, Thresholded
from plausiflow.errors import DataNotFoundError
from plausiflow.methods import PPCEF
from plausiflow.models import NODE, LinearClassifier, MLPClassifier
from plausiflow.search.mixed import MixedSearch
from plausiflow.solvers import SQP, PenaltyAdam, cuda_graphs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

BRIEF = Training(epochs=15, learning_rate=1e-2, noise=0.02)
ENOUGH = Training(epochs=150, learning_rate=3e-2)


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    x = 0.15 * torch.randn(400, 4, generator=generator, dtype=torch.float32) + 0.3 + 0.4 * y[:, None]
    return x, y


def on_cuda(rows, classifier, plausibility, **settings):
    x, y = (t.cuda() for t in rows)
    method = PPCEF(classifier=classifier, plausibility=plausibility, lower=0.0, upper=1.0, **settings)
    return method.fit(x, y)


@pytest.fixture(scope="module")
def linear(rows):
    return LinearClassifier(training=ENOUGH).fit(*rows)


@pytest.fixture(scope="module")
def flow(rows):
    return Thresholded(density=ConditionalFlow(training=BRIEF).fit(*rows)).fit(*rows)


@pytest.mark.parametrize(
    "density", [ConditionalFlow(training=BRIEF), KDE(), GMM()], ids=lambda d: type(d).__name__
)
@pytest.mark.parametrize("solver", [SQP(), SQP(mode="quality")], ids=["fast", "quality"])
def test_answers_on_cuda_equal_those_of_the_cpu(rows, linear, density, solver):
    x, y = rows
    density.fit(x, y)
    answers = {}
    for device in ("cpu", "cuda"):
        plausibility = Thresholded(density=density).fit(x.to(device), y.to(device))
        method = PPCEF(classifier=linear, plausibility=plausibility, lower=0.0, upper=1.0, solver=solver)
        found = method.fit(x.to(device), y.to(device)).explain(x[:50].to(device))
        assert found.x_cf.device.type == device
        assert found.feasible.all()
        answers[device] = found
    cost = {device: (found.x_cf - found.x).norm(dim=1).cpu() for device, found in answers.items()}
    torch.testing.assert_close(cost["cuda"], cost["cpu"], rtol=1e-2, atol=1e-3)
    apart = (answers["cuda"].x_cf.cpu() - answers["cpu"].x_cf).abs().amax(dim=1)
    assert (apart < 1e-4).double().mean() >= 0.9


def test_an_ensemble_on_cuda_gives_the_answers_of_the_cpu(rows, linear):
    x, y = rows
    ensemble = CrossFitEnsemble(members=3, base=ConditionalFlow(training=BRIEF)).fit(x, y)
    here = PPCEF(classifier=linear, plausibility=ensemble, lower=0.0, upper=1.0).fit(x, y).explain(x[:50])
    there = on_cuda(rows, linear, ensemble).explain(x[:50].cuda())
    assert torch.equal(there.feasible.cpu(), here.feasible)
    cost = ((found.x_cf - found.x).norm(dim=1).cpu() for found in (there, here))
    torch.testing.assert_close(*cost, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("model", [LinearClassifier, MLPClassifier, NODE])
def test_models_densities_and_metrics_run_on_cuda(rows, model):
    x, y = (t.cuda() for t in rows)
    classifier = model(training=BRIEF).fit(x, y)
    flow = ConditionalFlow(architecture="realnvp", training=BRIEF).fit(x, y)
    plausibility = Thresholded(density=flow).fit(x, y)
    method = PPCEF(classifier=classifier, plausibility=plausibility, solver=PenaltyAdam(steps=30))
    found = method.explain(x[:20])
    values = evaluate(found, Context(classifier=classifier, plausibility=plausibility, x_train=x, y_train=y))
    assert values["coverage"] == 1.0
    assert found.log_prob.device.type == "cuda"


def test_few_rows_are_searched_by_graphs(rows, linear, flow, monkeypatch):
    recorded = []

    class Counted(cuda_graphs.RecordedIteration):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            recorded.append(self)

    monkeypatch.setattr(cuda_graphs, "RecordedIteration", Counted)
    found = on_cuda(rows, linear, flow).explain(rows[0][:50].cuda())
    assert recorded
    assert found.feasible.all()


class ReadsAValue:
    """A model that cannot be recorded as a graph: it copies a value to the CPU."""

    n_classes, differentiable = 2, True

    def __init__(self, model):
        self.model = model

    def logits(self, x):
        if not torch.isfinite(x.sum()).item():
            raise ValueError("`x` must be finite")
        return self.model.logits(x)


def test_a_model_that_reads_a_value_is_searched_without_graphs(rows, linear, flow, monkeypatch):
    class Never(cuda_graphs.RecordedIteration):
        def __init__(self, *arguments):
            raise AssertionError("this cannot be recorded")

    expected = on_cuda(rows, linear, flow).explain(rows[0][:50].cuda())
    monkeypatch.setattr(cuda_graphs, "RecordedIteration", Never)
    found = on_cuda(rows, ReadsAValue(linear), flow).explain(rows[0][:50].cuda())
    assert found.feasible.all()
    cost = ((answer.x_cf - answer.x).norm(dim=1) for answer in (found, expected))
    torch.testing.assert_close(*cost, rtol=1e-2, atol=1e-3)
    assert torch.cuda.get_sync_debug_mode() == 0


def test_memory_does_not_grow_from_run_to_run(rows, linear, flow):
    method, x = on_cuda(rows, linear, flow), rows[0].cuda().repeat(20, 1)
    method.explain(x)
    used = []
    for _ in range(5):
        method.explain(x)
        used.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    assert used[-1] == used[0]


def test_a_chunk_that_does_not_fit_is_halved(rows, linear, flow, monkeypatch):
    method, x = on_cuda(rows, linear, flow), rows[0].cuda().repeat(60, 1)
    whole, sizes = method.explain(x), []
    inner = type(method)._explain_rows

    def short(self, x, target):
        sizes.append(len(x))
        if len(x) > 10_000:
            raise torch.OutOfMemoryError("no memory for so many")
        return inner(self, x, target)

    monkeypatch.setattr(type(method), "_explain_rows", short)
    found = method.explain(x)
    assert len(found.x) == len(x)
    assert max(sizes) > 10_000 >= sizes[-1]
    assert torch.equal(found.feasible, whole.feasible)


@pytest.mark.parametrize("name", ["loans", "german_credit"])
def test_a_table_is_explained_on_cuda_as_on_the_cpu(name):
    try:
        train, test = pf.load_table(name).split(500, 60)
    except DataNotFoundError as error:
        pytest.skip(str(error))
    explainer = pf.Explainer(MLPClassifier(hidden=(16,)), confidence=None, judges=0)
    explainer.fit(train.x, train.y)
    there, here = (explainer.explain(test.x, device=device) for device in ("cuda", "cpu"))
    assert (there.status["status"] == here.status["status"]).mean() >= 0.98
    assert (there.status["status"] == "found").mean() > 0.5
    assert there.figures["cost"].mean() == pytest.approx(here.figures["cost"].mean(), rel=0.01)


def test_by_default_many_rows_of_a_table_are_searched_on_cuda(monkeypatch):
    train, test = pf.load_table("loans").split(400, 40)
    explainer = pf.Explainer(LinearClassifier(training=ENOUGH), confidence=None, judges=0)
    explainer.fit(train.x, train.y)
    devices = []
    run = MixedSearch.run

    def seen(self, task, *arguments, **options):
        devices.append(task.x.device.type)
        return run(self, task, *arguments, **options)

    monkeypatch.setattr(MixedSearch, "run", seen)
    monkeypatch.setattr(batches, "ROWS_WORTH_A_GPU", 20)
    explainer.explain(test.x)
    assert devices[0] == "cuda"
    explainer.explain(test.x.iloc[:3])
    assert devices[-1] == "cpu"
