"""What the tests of few actions share."""

import pytest

from plausiflow.groups import proposals


@pytest.fixture(scope="module")
def few_proposals():
    """Fewer proposals than usual: the choice takes less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposals, "MOST_PROPOSALS", 60)
        yield
