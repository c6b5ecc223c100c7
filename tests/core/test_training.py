"""The training loop, the checks of its input, frozen copies and the progress bar."""

import copy
import io
import pickle
import random
import sys

import numpy as np
import pytest
import torch
from torch import nn

from plausiflow.core.frozen import Frozen
from plausiflow.core.training import Training, check_rows, local_seed, split_rows, train
from plausiflow.errors import InvalidInputError, ShapeError, TrainingError
from plausiflow.progress import progress_bar

SHORT = Training(epochs=12, batch_size=16, learning_rate=0.05)


def rows(n=80):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] > 0).long()


def network(dropout=0.0):
    """The same weights at every call."""
    with local_seed(5, torch.device("cpu")):
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2)).double()


def cross_entropy_of(module):
    return lambda x, y: nn.functional.cross_entropy(module(x), y, reduction="none")


def trained(settings=SHORT, seed=0, dropout=0.0):
    module = network(dropout)
    train(module, cross_entropy_of(module), *rows(), settings=settings, random_state=seed, label="test")
    return module


def same_weights(one, other):
    return all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


class Watched:
    """Cross entropy that remembers its mean over the held-out rows after every epoch."""

    def __init__(self, module):
        self.module, self.held_out = module, []

    def __call__(self, x, y):
        loss = cross_entropy_of(self.module)(x, y)
        if not self.module.training:
            self.held_out.append(loss.mean().item())
        return loss


# Rows held out


def test_held_out_and_kept_rows_are_a_partition():
    held_out, kept = split_rows(torch.zeros(100), 0.15, torch.Generator().manual_seed(0))
    assert (len(held_out), len(kept)) == (15, 85)
    assert sorted([*held_out.tolist(), *kept.tolist()]) == list(range(100))


def test_the_generator_decides_which_rows_are_held_out():
    first, again, other = (
        split_rows(torch.zeros(100), 0.15, torch.Generator().manual_seed(seed))[0] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("n", "share"), [(9, 0.3), (1, 0.15), (100, 0.0), (12, 0.01)])
def test_too_few_rows_are_both_held_out_and_kept(n, share):
    held_out, kept = split_rows(torch.zeros(n), share, torch.Generator().manual_seed(0))
    assert sorted(held_out.tolist()) == sorted(kept.tolist()) == list(range(n))


# The loop


def test_training_lowers_the_loss():
    x, y = rows()
    before, after = network(), trained()
    assert cross_entropy_of(after)(x, y).mean() < 0.5 * cross_entropy_of(before)(x, y).mean()


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_the_best_weights_are_kept(tolerance):
    settings = Training(
        epochs=40, batch_size=8, learning_rate=1.0, patience=40, validation=0.3, tolerance=tolerance
    )
    x, y = rows()
    module = network()
    watched = Watched(module)
    train(module, watched, x, y, settings=settings, random_state=0, label="test")
    held_out, _ = split_rows(y, settings.validation, torch.Generator().manual_seed(0))
    final = cross_entropy_of(module)(x[held_out], y[held_out]).mean().item()
    assert watched.held_out[-1] > min(watched.held_out) + tolerance  # the last epoch was not the best
    assert final == pytest.approx(min(watched.held_out), abs=tolerance + 1e-12)


def test_a_loss_that_does_not_fall_stops_training_early():
    module = network()
    watched = Watched(module)
    settings = Training(epochs=1000, learning_rate=0.0, patience=3, reductions=2)
    train(module, watched, *rows(), settings=settings, random_state=0, label="test")
    assert len(watched.held_out) <= 1 + (3 + 1) * (2 + 1)
    assert same_weights(module, network())


def test_training_ends_in_evaluation_mode():
    assert not any(module.training for module in trained(dropout=0.5).modules())


def test_the_same_seed_gives_the_same_weights_whatever_the_global_seed():
    settings = Training(epochs=3, noise=0.1)
    torch.manual_seed(1)
    first = trained(settings, dropout=0.5)
    torch.manual_seed(2)
    assert same_weights(first, trained(settings, dropout=0.5))
    assert not same_weights(first, trained(settings, seed=1, dropout=0.5))


def test_training_leaves_the_global_generators_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    trained(Training(epochs=2, noise=0.1), dropout=0.5)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    assert before[2] == random.getstate()


def test_local_seed_gives_the_global_generator_back_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), local_seed(7, torch.device("cpu")):
        raise ZeroDivisionError
    assert torch.equal(before, torch.get_rng_state())


def test_training_on_the_processor_leaves_the_generators_of_cuda_alone(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    with local_seed(7, torch.device("cpu")):
        pass
    assert not seeded


def test_a_loss_that_is_never_a_number_is_an_error():
    module = network()
    with pytest.raises(
        TrainingError, match=r"Training it: the loss was not a number in every epoch.*lower `learning_rate`"
    ):
        train(
            module,
            lambda x, _: module(x)[:, 0] * torch.nan,
            *rows(),
            settings=SHORT,
            random_state=0,
            label="Training it",
        )


def test_a_batch_whose_loss_is_not_a_number_is_left_out():
    x, y = rows()
    module = network()
    marked = x[7]

    def loss(batch, classes):
        value = cross_entropy_of(module)(batch, classes)
        broken = module.training and (batch == marked).all(dim=1).any()
        return value * torch.nan if broken else value

    train(module, loss, x, y, settings=SHORT, random_state=0, label="test")
    assert all(torch.isfinite(weight).all() for weight in module.parameters())
    assert cross_entropy_of(module)(x, y).mean() < 0.5 * cross_entropy_of(network())(x, y).mean()


def test_prepare_sees_the_rows_trained_on_and_no_held_out_row():
    x, y = rows()
    seen = []
    module = network()
    train(
        module,
        cross_entropy_of(module),
        x,
        y,
        settings=SHORT,
        random_state=4,
        label="test",
        prepare=lambda *kept: seen.append(kept),
    )
    _, kept = split_rows(y, SHORT.validation, torch.Generator().manual_seed(4))
    ((x_seen, y_seen),) = seen
    assert torch.equal(x_seen, x[kept])
    assert torch.equal(y_seen, y[kept])


# Checks of the input


def test_good_rows_pass():
    check_rows(torch.rand(4, 2), torch.tensor([0, 1, 2, 0]), n_classes=3)


@pytest.mark.parametrize(
    ("x", "y", "error", "text"),
    [
        (torch.rand(4), torch.zeros(4).long(), ShapeError, r"`x` must have shape \(n, d\).*got \(4,\)"),
        (
            torch.rand(0, 2),
            torch.zeros(0).long(),
            ShapeError,
            r"at least one row and one column; got \(0, 2\)",
        ),
        (
            torch.rand(3, 0),
            torch.zeros(3).long(),
            ShapeError,
            r"at least one row and one column; got \(3, 0\)",
        ),
        (
            torch.rand(3, 2),
            torch.zeros(2).long(),
            ShapeError,
            r"`y` must have shape \(3,\), one class per row; got \(2,\)",
        ),
        (torch.rand(3, 2), torch.zeros(3, 1).long(), ShapeError, r"`y` must have shape \(3,\).*got \(3, 1\)"),
        (
            torch.ones(3, 2).long(),
            torch.zeros(3).long(),
            InvalidInputError,
            r"`x` must be a float tensor; got torch.int64",
        ),
        (
            torch.tensor([[0.0, 1.0], [0.0, torch.nan], [torch.inf, 0.0]]),
            torch.zeros(3).long(),
            InvalidInputError,
            r"`x` must be finite; 2 entries are NaN or infinite \(first at row 1, column 1\)",
        ),
        (
            torch.rand(3, 2),
            torch.zeros(3),
            InvalidInputError,
            r"`y` must be a long tensor of class numbers; got torch.float",
        ),
        (
            torch.rand(3, 2),
            torch.tensor([0, -1, 1]),
            InvalidInputError,
            r"`y` must number classes from 0; got -1",
        ),
        (
            torch.rand(3, 2),
            torch.tensor([0, 3, 1]),
            InvalidInputError,
            r"`y` must be below 3, the number of classes; got 3",
        ),
    ],
)
def test_a_problem_is_named_with_what_came(x, y, error, text):
    with pytest.raises(error, match=text):
        check_rows(x, y, n_classes=3)


def test_every_problem_is_named_at_once_and_what_to_do():
    with pytest.raises(ShapeError) as caught:
        check_rows(torch.tensor([[0.0, torch.nan]]), torch.zeros(2))
    message = str(caught.value)
    for part in (
        "`x` must be finite",
        "`y` must have shape (1,)",
        "`y` must be a long tensor",
        "Encode the table first",
    ):
        assert part in message


def test_a_scalar_is_a_shape_problem():
    with pytest.raises(ShapeError):
        check_rows(torch.tensor(torch.nan), torch.tensor(0))


# Frozen copies


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_frozen_copy_follows_the_dtype(precision):
    frozen = Frozen(network())
    like = torch.rand(2, 3, dtype=precision)
    assert frozen(like)(like).dtype == precision


def test_a_frozen_copy_is_in_evaluation_mode_and_takes_no_gradients():
    module = network(dropout=0.5).train()
    x, _ = rows()
    frozen = Frozen(module)(x)
    assert not any(part.training for part in frozen.modules())
    assert not any(weight.requires_grad for weight in frozen.parameters())
    assert torch.equal(frozen(x), frozen(x))  # no dropout


def test_the_users_module_is_left_as_it_was():
    module = network(dropout=0.5).train()
    module[0].weight.requires_grad_(False)
    before = copy.deepcopy(module)
    frozen = Frozen(module)
    frozen(torch.rand(1, dtype=torch.float32))
    assert all(part.training for part in module.modules())
    assert [weight.requires_grad for weight in module.parameters()] == [
        weight.requires_grad for weight in before.parameters()
    ]
    assert [weight.dtype for weight in module.parameters()] == [torch.float64] * 4
    assert same_weights(module, before)


def test_a_copy_is_made_once_for_each_dtype_and_finished_once():
    finished = []
    frozen = Frozen(network(), finish=finished.append)
    single, double = torch.rand(1, dtype=torch.float32), torch.rand(1, dtype=torch.float64)
    assert frozen(single) is frozen(single) is not frozen(double)
    assert finished == [frozen(single), frozen(double)]


def test_a_copy_does_not_follow_the_module():
    module = network()
    frozen = Frozen(module)
    x, _ = rows()
    old = frozen(x)(x)
    with torch.no_grad():
        module[3].bias.add_(1.0)
    assert torch.equal(frozen(x)(x), old)


def test_pickling_keeps_the_module_and_drops_the_copies():
    frozen = Frozen(network())
    x, _ = rows()
    expected = frozen(x)(x)
    loaded = pickle.loads(pickle.dumps(frozen))
    assert not loaded.copies
    assert torch.equal(loaded(x)(x), expected)


# The progress bar


def advance_a_bar():
    with progress_bar("Training a flow", 3) as advance:
        for step in range(3):
            advance(1, f"step {step}")


@pytest.fixture
def no_wish_for_colours(monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_a_bar_is_silent_where_standard_error_is_no_terminal(capfd, no_wish_for_colours):
    advance_a_bar()
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_silent_where_colours_are_forced_but_standard_error_is_no_terminal(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    advance_a_bar()
    assert capfd.readouterr() == ("", "")


def test_a_bar_shows_its_label_on_a_terminal(monkeypatch, capfd, no_wish_for_colours):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    advance_a_bar()
    assert "Training a flow" in sys.stderr.getvalue()
    assert "step 2" in sys.stderr.getvalue()
    assert capfd.readouterr().out == ""
