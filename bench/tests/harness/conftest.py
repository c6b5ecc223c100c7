"""Work that notes in the folder of a test what it does."""

import pytest

from running import Work


@pytest.fixture
def work(tmp_path) -> Work:
    return Work(str(tmp_path / "log"))
