"""Real clients on the simulated driver, bare and behind the shim: `make test-clients`.

They are some hundred MB of wheels and take minutes, so they are not part of the normal run; what
they need is the extra `clients` of pyproject.toml, in an environment of its own.
"""

from collections.abc import AsyncIterator

import pytest

from tests.clients.client_box import ClientBox, client_box


@pytest.fixture
async def clients() -> AsyncIterator[ClientBox]:
    async with client_box() as box:
        yield box
