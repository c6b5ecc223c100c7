"""The base class of methods, and settings of PPCEF alone."""

from dataclasses import dataclass

import pytest
import torch

from method_cases import QUICK_ADAM, assert_consistent
from plausiflow.core import Solution
from plausiflow.methods import PPCEF, Method
from plausiflow.models import LinearClassifier
from plausiflow.solvers import PenaltyAdam


@dataclass(kw_only=True, eq=False)
class Given(Method):
    """A method that returns given counterfactuals."""

    label = "Given"
    answer: torch.Tensor
    path: torch.Tensor | None = None

    def search(self, x, y_target):
        self.searched = x
        return Solution(x=self.answer, gradients=torch.ones(len(x), dtype=torch.long), path=self.path)


def test_a_method_without_a_search_cannot_be_made(two_classes):
    with pytest.raises(TypeError, match="search"):
        Method(classifier=two_classes.classifier)


def test_a_counterfactual_with_an_entry_that_is_not_finite_counts_as_not_found():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    answer = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [1.0, torch.inf], [-1.0, 0.0]])
    found = Given(classifier=classifier, answer=answer).explain(torch.full((4, 2), -1.0))
    assert found.found.tolist() == [True, False, False, True]
    assert found.valid.tolist() == [True, False, False, False]
    assert found.y_cf.tolist() == [1, -1, -1, 0]
    assert_consistent(found)


def test_without_a_plausibility_no_row_is_plausible():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    found = Given(classifier=classifier, answer=torch.ones(3, 2)).explain(-torch.ones(3, 2))
    assert found.valid.all()
    assert not found.plausible.any()
    assert torch.isnan(found.log_prob).all()


def test_only_usable_rows_are_searched_and_paths_have_a_place_for_every_row():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
    x = torch.tensor([[-1.0, 0.0], [torch.nan, 0.0], [-2.0, 0.0]])
    path = torch.rand(5, 2, 2)
    method = Given(classifier=classifier, answer=torch.ones(2, 2), path=path)
    found = method.explain(x)
    assert torch.equal(method.searched, x[[0, 2]])
    assert found.path.shape == (5, 3, 2)
    assert torch.equal(found.path[:, [0, 2]], path)
    assert torch.isnan(found.path[:, 1]).all()


def test_fit_of_a_method_that_learns_nothing_returns_the_method():
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
