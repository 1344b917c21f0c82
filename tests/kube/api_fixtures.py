"""API servers for the tests of this folder."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.kube.access import Access, read_kubeconfig
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.api_world import KUBECONFIG, ApiWorld
from tests.kube.kube_clients import close_clients


@pytest.fixture
async def server() -> AsyncIterator[SimulatedApiServer]:
    simulated = SimulatedApiServer()
    await simulated.start()
    yield simulated
    await close_clients()
    await simulated.stop()


@pytest.fixture
async def simulated(server: SimulatedApiServer) -> AsyncIterator[ApiWorld]:
    world = ApiWorld(Access(server.url), server)
    async with world.api:
        await world.start()
        yield world


@pytest.fixture(params=["simulated", "real"])
async def world(request: pytest.FixtureRequest, simulated: ApiWorld) -> AsyncIterator[ApiWorld]:
    """Both kinds of API server, for what has to hold of both."""
    if request.param == "simulated":
        yield simulated
        return
    if KUBECONFIG not in os.environ:
        pytest.skip(f"no real API server: {KUBECONFIG} names no kubeconfig")
    real = ApiWorld(read_kubeconfig(Path(os.environ[KUBECONFIG])))
    async with real.api:
        await real.start()
        yield real
        await real.stop()
