"""An API server and an extender that follows it."""

from collections.abc import AsyncIterator

import pytest

from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import close_clients
from tests.scheduler.scheduler_world import node_object
from tests.scheduler.served_extender import Served, serving


@pytest.fixture
async def api() -> AsyncIterator[SimulatedApiServer]:
    server = SimulatedApiServer()
    await server.start()
    yield server
    await close_clients()
    await server.stop()


@pytest.fixture
async def served(api: SimulatedApiServer) -> AsyncIterator[Served]:
    """Over two nodes of four GPUs: a and b."""
    for name in ("a", "b"):
        await api.create("nodes", node_object(name))
    async with serving(api) as one:
        yield one
