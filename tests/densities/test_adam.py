"""Adam and its schedule are those of torch."""

import pytest
import torch

from plausiflow.densities.adam import FIRST, LAST, WARM_UP, Adam, learning_rates


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_steps_are_those_of_torch(decay):
    own, other = torch.ones(3, 2), torch.ones(3, 2, requires_grad=True)
    ours, theirs = (
        Adam([own], (0.9, 0.99), decay),
        torch.optim.AdamW([other], betas=(0.9, 0.99), weight_decay=decay),
    )
    rates = learning_rates(0.02, 40)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        theirs, 0.02, total_steps=41, pct_start=WARM_UP, div_factor=1 / FIRST,
        final_div_factor=FIRST / LAST, cycle_momentum=False,
    )  # fmt: skip
    for rate in rates:
        assert rate == pytest.approx(theirs.param_groups[0]["lr"])
        gradient = torch.randn(3, 2)
        ours.step([gradient], rate)
        other.grad = gradient.clone()
        theirs.step()
        schedule.step()
    torch.testing.assert_close(own, other.detach(), rtol=1e-9, atol=1e-12)
