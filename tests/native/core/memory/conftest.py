"""For tests of pools."""

from collections.abc import Iterator

import pytest

from tests.native.core.memory.pools_play import Pools


@pytest.fixture
def pools() -> Iterator[Pools]:
    with Pools() as made:
        yield made
