"""Verification: what model and density say of every counterfactual, and NaN where none was found."""

import pytest
import torch

from measuring import NAN
from plausiflow.core.verification import verify_counterfactuals
from plausiflow.errors import ShapeError


class NoEmptyBatches:
    """A model that rejects an empty batch, as scikit-learn does, and rows that are not finite."""

    n_classes, differentiable = 2, True

    def logits(self, x):
        assert len(x)
        assert torch.isfinite(x).all()
        return torch.stack([-x[:, 0], x[:, 0]], dim=1)

    def score(self, x, y):
        assert len(x)
        return x[:, 0]


def test_a_row_is_nan_exactly_where_nothing_was_found(five_rows):
    assert five_rows.found.tolist() == [True, True, True, False, True]
    assert five_rows.x_cf.isnan().all(dim=1).tolist() == five_rows.x_cf.isnan().any(dim=1).tolist()
    assert (~five_rows.found == five_rows.x_cf.isnan().all(dim=1)).all()
    assert five_rows.y.tolist() == [0, 0, 0, 0, 2]
    assert five_rows.y_cf.tolist() == [1, 2, 0, -1, 0]
    assert five_rows.valid.tolist() == [True, False, False, False, True]
    assert five_rows.plausible.tolist() == [True, True, True, False, False]
    assert five_rows.log_prob[[0, 1, 4]].tolist() == [11, 9, -1]
    assert five_rows.log_delta[[0, 1, 4]].tolist() == [9, 9, 9]
    assert five_rows.log_prob[3].isnan()
    assert five_rows.log_delta[3].isnan()
    assert five_rows.gradients.tolist() == [0] * 5
    assert five_rows.seconds.tolist() == [0.5] * 5


def test_no_model_is_called_for_rows_without_a_counterfactual():
    model = NoEmptyBatches()
    for x in (torch.zeros(0, 2), torch.tensor([[NAN, 1.0], [torch.inf, 1.0]])):
        target = torch.ones(len(x), dtype=torch.long)
        cf = verify_counterfactuals(
            classifier=model, plausibility=model, x=x, x_cf=torch.full_like(x, torch.inf), y_target=target
        )
        assert len(cf) == len(x)
        assert cf.x_cf.isnan().all()
        assert not (cf.found | cf.valid | cf.plausible).any()
        assert cf.seconds.isnan().all()


def test_verification_runs_in_double_precision():
    class OnlyDouble(NoEmptyBatches):
        def logits(self, x):
            assert x.dtype == torch.float64
            return super().logits(x)

        def score(self, x, y):
            assert x.dtype == torch.float64
            return super().score(x, y)

    x = torch.tensor([[-1.0, 0.0]], dtype=torch.float32)
    cf = verify_counterfactuals(
        classifier=OnlyDouble(),
        plausibility=OnlyDouble(),
        x=x,
        x_cf=-x,
        y_target=torch.ones(1, dtype=torch.long),
    )
    assert cf.x_cf.dtype == torch.float32
    assert cf.feasible.all()


def test_values_that_are_known_already_are_kept():
    x, y = torch.ones(2, 2), torch.tensor([7, 8])
    gradients, path = torch.tensor([3, 4]), torch.zeros(5, 2, 2)
    cf = verify_counterfactuals(
        classifier=NoEmptyBatches(),
        plausibility=None,
        x=x,
        x_cf=x,
        y_target=y,
        y=y,
        gradients=gradients,
        path=path,
    )
    assert cf.y is y
    assert cf.gradients is gradients
    assert cf.path is path
    assert not cf.plausible.any()
    assert cf.log_prob.isnan().all()


def test_wrong_shapes_are_an_error_that_names_every_problem():
    with pytest.raises(
        ShapeError, match=r"`x_cf` must have the shape of `x`, \(2, 3\); got \(2, 2\); `y_target` .* \(2,\)"
    ):
        verify_counterfactuals(
            classifier=NoEmptyBatches(),
            plausibility=None,
            x=torch.zeros(2, 3),
            x_cf=torch.zeros(2, 2),
            y_target=torch.zeros(3, dtype=torch.long),
        )
