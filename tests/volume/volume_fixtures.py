"""Fixtures of these tests; a plugin named by each module, as what they hand out is imported too."""

from pathlib import Path

import pytest

from tests.volume.driver_host import FakeHost, Parts


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return Parts(tmp_path_factory.mktemp("parts"))


@pytest.fixture
def host(tmp_path: Path, parts: Parts) -> FakeHost:
    """A machine without any driver."""
    made = FakeHost(tmp_path / "root", parts)
    made.write_cache()
    return made
