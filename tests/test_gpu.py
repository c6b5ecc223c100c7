"""The same code on CUDA: answers stay on the device and equal those of the processor."""

import pytest
import torch

from plausiflow.classifiers import NODE, LinearClassifier, MLPClassifier
from plausiflow.densities import GMM, KDE, ConditionalFlow, Thresholded
from plausiflow.methods import PPCEF
from plausiflow.metrics import Context, evaluate
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow.training import Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

BRIEF = Training(epochs=15, learning_rate=1e-2, noise=0.02)


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    x = 0.15 * torch.randn(400, 4, generator=generator, dtype=torch.float32) + 0.3 + 0.4 * y[:, None]
    return x, y


@pytest.mark.parametrize(
    "density", [ConditionalFlow(training=BRIEF), KDE(), GMM()], ids=lambda d: type(d).__name__
)
@pytest.mark.parametrize("solver", [SQP(), SQP(mode="quality")], ids=["fast", "quality"])
def test_answers_on_cuda_equal_those_of_the_processor(rows, density, solver):
    x, y = rows
    classifier = LinearClassifier(training=BRIEF).fit(x, y)
    density.fit(x, y)
    answers = {}
    for device in ("cpu", "cuda"):
        plausibility = Thresholded(density=density).fit(x.to(device), y.to(device))
        method = PPCEF(classifier=classifier, plausibility=plausibility, lower=0.0, upper=1.0, solver=solver)
        found = method.fit(x.to(device), y.to(device)).explain(x[:50].to(device))
        assert found.x_cf.device.type == device
        assert found.feasible.all()
        answers[device] = found.x_cf.cpu()
    torch.testing.assert_close(answers["cuda"], answers["cpu"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("model", [LinearClassifier, MLPClassifier, NODE])
def test_models_densities_and_metrics_live_on_cuda(rows, model):
    x, y = (t.cuda() for t in rows)
    classifier = model(training=BRIEF).fit(x, y)
    flow = ConditionalFlow(architecture="realnvp", training=BRIEF).fit(x, y)
    plausibility = Thresholded(density=flow).fit(x, y)
    method = PPCEF(classifier=classifier, plausibility=plausibility, solver=PenaltyAdam(steps=30))
    found = method.explain(x[:20])
    values = evaluate(found, Context(classifier=classifier, plausibility=plausibility, x_train=x, y_train=y))
    assert values["coverage"] == 1.0
    assert found.log_prob.device.type == "cuda"
