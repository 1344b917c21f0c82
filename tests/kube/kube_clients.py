"""Clients of a simulated API server, closed when its fixture ends."""

from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.sim.cluster.server import SimulatedApiServer

_OPEN: list[KubeClient] = []


def client_of(server: SimulatedApiServer, path: str = "", token: str = "") -> KubeClient:
    """path: before `/api`."""
    return opened(Access(server.url + path, token=token))


def opened(access: Access) -> KubeClient:
    _OPEN.append(KubeClient(access))
    return _OPEN[-1]


async def close_clients() -> None:
    """All that were made so far."""
    while _OPEN:
        await _OPEN.pop().close()
