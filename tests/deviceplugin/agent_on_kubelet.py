"""The agent's side of the device plugin API, whole, on a simulated kubelet, in one process.

Real sockets, the real allocator, journal and `/pods`; only nobody enforces limits: what would be is
remembered by allocation.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal_file import JournalFile
from gpumanager.grants.node import Node
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import DeviceFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.kubelet.pods import KubeletPods, PodsSource
from gpumanager.kubelet.pods_api import PodsApi, PreferredPods
from gpumanager.names import KUBELET_CHECKPOINT, KUBELET_SOCKET, VCORE, VMEMORY
from gpumanager.sim.in_memory import SimulatedLimits
from gpumanager.sim.kubelet.kubelet import RunOptions, SimulatedKubelet
from gpumanager.sim.kubelet.pods import Rejection
from gpumanager.sim.kubelet.versions import KubeletVersion
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from tests.deviceplugin.admission.admission_node import VOLUMES
from tests.deviceplugin.admission.admission_node import gpus as gpus_of

BOUND: Final = 120.0
"""Seconds after which a test is stuck; a busy machine may need many."""
GPUS: Final = 2
JOURNAL: Final = "allocations.json"
BLOCKS: Final = 64
"""Of memory, on each GPU."""


def surroundings(
    base: Path, pods: PodsSource, limits: SimulatedLimits | None = None
) -> Dependencies:
    """Of an allocator whose journal is in `base`, beside the kubelet's directory."""
    return Dependencies(
        isolation=Isolations(
            limits or SimulatedLimits(),
            VOLUMES,
            DeviceFiles(),
        ),
        books=DeviceCheckpoint(base / "kubelet" / KUBELET_CHECKPOINT),
        pods=pods,
    )


def granted_node(base: Path, deps: Dependencies, gpus: Topology) -> Node:
    """The owner of these GPUs, whose journal is in `base`."""
    return Node(gpus, GrantStore(JournalFile(base / JOURNAL), deps.isolation))


class AgentOnKubelet:
    """One node. `start_agent` again is another process with the same journal."""

    def __init__(
        self, base: Path, version: KubeletVersion, *, gpus: Topology | None = None
    ) -> None:
        self.gpus = gpus or gpus_of(GPUS, BLOCKS)
        self.limits = SimulatedLimits()
        self.token = base / "token"
        self._patience = BOUND
        self._base = base
        directory = base / "kubelet"
        self.kubelet = SimulatedKubelet(directory, Random(7), base / "resources.sock", version)
        self.pods_api = PodsApi(self.kubelet.pods_api_socket, BOUND)
        self.allocator = self._new_allocator()
        self.plugin = DevicePlugin(self.allocator, directory)
        self._pods: PreferredPods | None = None

    async def start_agent(self) -> None:
        """Until both resources are there."""
        self._pods = None
        self.allocator = self._new_allocator()
        self.plugin = DevicePlugin(self.allocator, self._base / "kubelet")
        await self.allocator.recover()
        await self.plugin.start()
        await self.kubelet.wait_for_devices((VCORE, VMEMORY), BOUND)

    def sockets(self) -> list[str]:
        """Names of those that plugins have in the kubelet's directory."""
        names = (one.name for one in (self._base / "kubelet").glob("*.sock"))
        return [name for name in names if name != KUBELET_SOCKET]

    async def run(self, pod: Pod) -> Rejection | None:
        """Admit it and start its containers."""
        rejection = await self.kubelet.admit(pod)
        if rejection is None:
            for one in pod.containers:
                await self.kubelet.prepare(pod, one)
            self.kubelet.running(pod.uid)
        return rejection

    def allocation(self, pod: Pod) -> Grant:
        """What is promised to the pod of one container."""
        (found,) = (one for one in self.allocator.node.journal.live() if one.owner == pod.uid)
        return found

    async def limited_to(self, pod: Pod) -> tuple[int, int]:
        """Cores and bytes that hold in the directory which its container has mounted."""
        options: RunOptions = await self.kubelet.prepare(pod, pod.containers[0])
        name = AllocationID(options.environment["VCUDA_ALLOCATION"])
        (limit,) = self.limits.open_now[name]
        return limit.cores, limit.memory

    def _new_allocator(self) -> Allocator:
        deps = surroundings(self._base, _Later(self), self.limits)
        return Allocator(granted_node(self._base, deps, self.gpus), deps)

    def wait_for_pods(self, seconds: float) -> None:
        """So long it gives `/pods` to come from now on."""
        self._patience, self._pods = seconds, None

    @property
    def pods(self) -> PreferredPods:
        """What the agent reads; made when it first asks, as the kubelet's port is known then."""
        if self._pods is None:
            endpoint = self.kubelet.http.endpoint
            http = KubeletPods(endpoint, token=self.token, deadline=self._patience)
            self._pods = PreferredPods(self.pods_api, http)
        return self._pods


class _Later:
    """The kubelet's port is known only once it has started."""

    def __init__(self, node: AgentOnKubelet) -> None:
        self._node = node

    async def pods(self) -> tuple[PodView, ...]:
        return await self._node.pods.pods()


def share(name: str, cores: int = 10, blocks: int = 4) -> Pod:
    """A pod of one container."""
    asks = {VCORE: cores, VMEMORY: blocks}
    return Pod("default", name, (ContainerManifest("main", ContainerKind.APP, ("x",), asks=asks),))


@asynccontextmanager
async def node_of(
    version: KubeletVersion, gpus: Topology | None = None
) -> AsyncIterator[AgentOnKubelet]:
    """A node whose kubelet runs; the agent is for the caller to start."""
    base = Path(tempfile.mkdtemp(prefix="gm"))
    node = AgentOnKubelet(base, version, gpus=gpus)
    await node.kubelet.start()
    try:
        yield node
    finally:
        await node.plugin.stop()
        await node.kubelet.stop()
        shutil.rmtree(base)
