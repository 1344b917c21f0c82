"""A cluster with webhook configurations, to keep certificates in."""

from collections.abc import AsyncIterator

import pytest

from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import close_clients
from tests.scheduler.certificates.certificate_world import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = SimulatedApiServer()
    await server.start()
    world = Cluster(server)
    await world.configure()
    yield world
    await close_clients()
    await server.stop()
