"""The favourable outcome: named by whoever starts the service, else guessed, else unknown."""

import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.service.favourable import favourable_outcome
from serving import AT, NAME, Client


@pytest.mark.parametrize(
    ("labels", "outcome", "source"),
    [
        (("granted", "rejected"), "granted", "name"),
        (("Approved", "Declined"), "Approved", "name"),
        (("No default", "default"), "No default", "name"),
        (("bad", "other"), "other", "name"),
        (("good", "medium", "poor"), "good", "name"),
        ((0, 1), 1, "order"),
        ((False, True), True, "order"),
        (("a", "b", "c"), None, ""),
        ((), None, ""),
    ],
)
def test_the_favourable_outcome_is_guessed_from_names_or_order(labels, outcome, source):
    found = favourable_outcome(labels)
    assert (found.outcome, found.source) == (outcome, source)


def test_a_named_target_has_the_last_word():
    assert favourable_outcome(("granted", "rejected"), "rejected").outcome == "rejected"
    assert favourable_outcome((), (100, None)).outcome == [100, None]


@pytest.mark.parametrize(("labels", "target"), [(("a", "b"), "c"), ((), "100"), ((), (None, None))])
def test_a_target_that_the_model_cannot_give_is_refused(labels, target):
    with pytest.raises(InvalidInputError, match="The target of the what-if page must be"):
        favourable_outcome(labels, target)


def test_the_service_tells_the_page_what_to_ask_for(client):
    described = client.get(AT).json()
    assert described["favourable"] == {"outcome": "yes", "source": "order"}
    assert described["judges"] == 0


def test_a_target_is_given_to_the_application():
    with Client(targets={NAME: "no"}) as other:
        assert other.get(AT).json()["favourable"] == {"outcome": "no", "source": "given"}
    with pytest.raises(InvalidInputError, match="rows and targets only for these"):
        Client(targets={"another": "no"})
