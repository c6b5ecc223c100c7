"""Every method, and two easy problems that are built once, because methods do not change them."""

import pytest

from method_cases import METHODS, setting


@pytest.fixture(scope="session")
def two_classes(dtype, device):
    return setting([[0.2, 0.3], [0.7, 0.7]], dtype, device)


@pytest.fixture(scope="session")
def three_classes(dtype, device):
    return setting([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]], dtype, device)


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def entry(request):
    return request.param
