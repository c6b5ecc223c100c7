"""A client of a service in the same process, and the rows that it sends."""

import pytest

from serving import NAME, Client, instances, people


@pytest.fixture(scope="module")
def client():
    with Client(rows={NAME: people()[1]}) as client:
        yield client


@pytest.fixture(scope="module")
def rows():
    return instances(people()[1])
