"""The fixture that numba-cuda's tests ask for (its testing.py) and that its package leaves out."""

import pytest


@pytest.fixture
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    request.instance._dump_failed_filechecks = False
