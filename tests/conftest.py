"""Tests of containers are skipped, aloud, where this kernel makes none."""

from functools import cache

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("namespaces") and (missing := _missing()):
        pytest.skip(missing)


@cache
def _missing() -> str | None:
    from gpumanager.sim.container.process import namespaces_available

    return namespaces_available()
