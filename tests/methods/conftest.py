"""Every method, and two easy problems, each made once: methods leave their rows and models as they are."""

import pytest

from contract import METHODS, setting


@pytest.fixture(scope="session")
def two_classes(dtype, device):
    return setting([[0.2, 0.3], [0.7, 0.7]], dtype, device)


@pytest.fixture(scope="session")
def three_classes(dtype, device):
    return setting([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]], dtype, device)


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def entry(request):
    return request.param
