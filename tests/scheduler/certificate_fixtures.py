"""A cluster with webhook configurations, to keep certificates in."""

from collections.abc import AsyncIterator

import pytest
from certificate_world import Cluster
from kube_clients import close_clients

from gpumanager.sim.cluster.server import SimulatedApiServer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = SimulatedApiServer()
    await server.start()
    world = Cluster(server)
    await world.configure()
    yield world
    await close_clients()
    await server.stop()
