"""The kubelet's calls timed, and four kinds of them that take Allocate's place in turns.

Allocate, and a call that asks for nothing, each through Python's gRPC client, which the simulated
kubelet has, and through a thin one, as a kubelet's compiled client is more like (thin_caller.py).
What two of them differ by is the agent's own work, or the client's. One container is one turn; its
GetPreferredAllocation before, and PreStartContainer after, always go through Python's client.
"""

import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from thin_caller import ThinCaller

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.grpc_wire import sockets_like
from gpumanager.names import VCORE, VCORE_SOCKET, VMEMORY, VMEMORY_SOCKET
from gpumanager.sim.kubelet.plugins import PluginEndpoint

SOCKETS = {VCORE: VCORE_SOCKET, VMEMORY: VMEMORY_SOCKET}
CALLS = {
    "preferred": "GetPreferredAllocation",
    "allocate": "Allocate",
    "pre_start": "PreStartContainer",
}
Seconds = list[float]
Method = Callable[..., Awaitable[Any]]

ALLOCATE = f"/{wire.DEVICE_PLUGIN}/{wire.ALLOCATE.name}"
OPTIONS = f"/{wire.DEVICE_PLUGIN}/{wire.OPTIONS.name}"


class Turns:
    """From now on every call of the kubelet to its plugins is timed. directory: their sockets'.

    calls: through Python's client, by call and resource. empty: the same, asking for nothing;
    thin, thin_empty: Allocate and nothing, through the thin one, of both resources.
    """

    def __init__(self, directory: Path) -> None:
        self.calls = {(call, one): Seconds() for call in CALLS for one in SOCKETS}
        self.empty, self.thin, self.thin_empty = Seconds(), Seconds(), Seconds()
        self._callers = {
            one: ThinCaller(sockets_like(directory / name)[0]) for one, name in SOCKETS.items()
        }
        self._plain = PluginEndpoint.allocate
        timed = {call: self._timed(getattr(PluginEndpoint, call), call) for call in CALLS}
        kinds = (timed["allocate"], self._after_nothing, self._thinly, self._after_thin_nothing)
        timed["allocate"] = in_turn(kinds)
        for call, method in timed.items():
            setattr(PluginEndpoint, call, method)

    @property
    def pods(self) -> int:
        """For one container measured: how many have to come."""
        return 4

    def both(self, call: str) -> Seconds:
        return [one for resource in SOCKETS for one in self.calls[call, resource]]

    def _timed(self, method: Method, call: str) -> Method:
        async def run(endpoint: PluginEndpoint, *arguments: Any) -> Any:
            begin = time.perf_counter()
            answer = await method(endpoint, *arguments)
            self.calls[call, endpoint.resource].append(time.perf_counter() - begin)
            return answer

        return run

    async def _after_nothing(self, endpoint: PluginEndpoint, ids: Any) -> Any:
        begin = time.perf_counter()
        await endpoint._client.options()  # noqa: SLF001  # no kubelet asks this then
        self.empty.append(time.perf_counter() - begin)
        return await self._plain(endpoint, ids)

    async def _thinly(self, endpoint: PluginEndpoint, ids: Any) -> Any:
        """The kubelet's loop stands still meanwhile: Allocate asks it nothing."""
        one = pb.ContainerAllocateRequest(devices_ids=sorted(ids))
        request = pb.AllocateRequest(container_requests=[one]).SerializeToString()
        seconds, answer = self._callers[endpoint.resource].call(
            f"/{wire.DEVICE_PLUGIN}/{wire.ALLOCATE.name}", request
        )
        self.thin.append(seconds)
        return pb.AllocateResponse.FromString(answer).container_responses[0]

    async def _after_thin_nothing(self, endpoint: PluginEndpoint, ids: Any) -> Any:
        seconds, _ = self._callers[endpoint.resource].call(
            f"/{wire.DEVICE_PLUGIN}/{wire.OPTIONS.name}", b""
        )
        self.thin_empty.append(seconds)
        return await self._plain(endpoint, ids)


def in_turn(kinds: tuple[Method, ...]) -> Method:
    """Each for the calls of one container: one for each resource."""
    turns = itertools.cycle([kind for kind in kinds for _ in SOCKETS])

    async def run(endpoint: PluginEndpoint, *arguments: Any) -> Any:
        return await next(turns)(endpoint, *arguments)

    return run
