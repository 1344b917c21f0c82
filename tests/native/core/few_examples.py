"""A pytest plugin: property tests of a slower build try fewer examples, none of them too slow:
`--hypothesis-profile=few`. Says at the end which build it was."""

import pytest
from hypothesis import HealthCheck, settings

import vcuda_shim._shim

settings.register_profile(
    "few", max_examples=15, deadline=None, suppress_health_check=list(HealthCheck)
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"tested: {vcuda_shim._shim.__file__}")
