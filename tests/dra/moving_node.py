"""A node whose GPUs go from one interface to the other, in one process, with an agent that may die.

The kubelet's device manager is the one of the allocator's tests; claims come by an API server that
only answers. What kubelet and scheduler know may be old until `read_all`. The judge adds up what
pods were given, from their own requests and the claims' allocations.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpumanager.agent.moves import ALL_GPUS, GpuMoves
from gpumanager.dra.driver import ClaimDriver, ClaimRef
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.offers import OfferFile
from gpumanager.grants.refusals import Refused
from gpumanager.ids import PodUID
from gpumanager.isolation.edits import DeviceFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.claims import device_name, read_claim
from gpumanager.kube.pod import PodView
from gpumanager.names import CLAIMS, DEVICE_PLUGINS, VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import (
    BLOCKS,
    JOURNAL,
    VOLUMES,
    AdmissionRefused,
    Node,
    gpus,
)
from tests.dra.claim_node import (
    NODE,
    AnsweringApi,
    MortalCdi,
    MortalJournal,
    MortalSockets,
    World,
    claim_item,
    pod_item,
    result,
)

QUIET = 5.0
MIB = 256


class MortalOffers(OfferFile):
    def __init__(self, directory: Path, world: World) -> None:
        super().__init__(directory)
        self.world = world

    def write(self, gpus: Collection[GpuUUID]) -> None:
        self.world.step()
        self.path.with_name("interfaces.json.new").write_text('{"vers')
        self.world.step()
        super().write(gpus)
        self.world.step()


@dataclass(frozen=True)
class Had:
    """What somebody was given of one GPU."""

    gpu: str
    interface: str
    cores: int
    blocks: int


class MovingNode(Node):
    """claims_gpus: how many claims should have; what `restart` says counts."""

    def __init__(self, directory: Path, count: int = 3, seed: int = 0) -> None:
        self.world = World()
        self.api = AnsweringApi()
        self.cdi = MortalCdi(directory / "cdi", self.world)
        self.claims_gpus: int | None = 0
        self.seconds = 0.0
        self.slice: frozenset[str] = frozenset()
        """Names of the devices that the API server has."""
        self.scheduler: frozenset[str] = frozenset()
        """The same, as the scheduler knows it."""
        self.slice_changed, self.devices_changed = asyncio.Event(), asyncio.Event()
        """The agent has told its publisher, or the kubelet, since the last time."""
        self.prepared: set[str] = set()
        self.pods: dict[PodUID, PodView] = {}
        super().__init__(directory, gpus(count), seed)
        self.virtual = MortalSockets(directory, world=self.world)
        self.moves = self._agent()

    def _agent(self) -> GpuMoves:
        self.allocator = self.new_allocator(MortalJournal(self.directory / JOURNAL, self.world))
        node = self.allocator.node
        node.interface = CLAIMS if self.claims_gpus == ALL_GPUS else DEVICE_PLUGINS
        deps: dict[str, Any] = {
            "isolation": Isolations(self.virtual, VOLUMES, DeviceFiles(Path("/dev"))),
            "claims": self.api,
            "cdi": self.cdi,
            "pool": NODE,
            "clock": self.clock,
        }
        self.driver = ClaimDriver(node, **deps)
        node.subscribe(self.slice_changed.set)
        self.slice_changed.set()
        return GpuMoves(
            node,
            self.allocator,
            self,
            file=MortalOffers(self.directory, self.world),
            claims_gpus=lambda: self.claims_gpus,
            quiet=QUIET,
            refresh=self.refresh,
            clock=lambda: self.seconds,
        )

    async def refresh(self) -> None:
        """The kubelet reads its lists when it comes to it."""
        self.world.step()
        self.devices_changed.set()

    def in_use(self) -> frozenset[GpuUUID]:
        granted = {gpu for one in self.driver.live() if one.counts for gpu in one.gpus}
        return frozenset(granted) | self.named(self.slice) | self.allocated()

    def allocated(self) -> frozenset[GpuUUID]:
        items = map(read_claim, self.api.items.values())
        return self.named({one.name for claim in items for one in claim.devices})

    async def restart(self, claims_gpus: int | None = None, dies_at: int | None = None) -> None:
        """Another agent. While there is none, the kubelet takes all its devices for ill."""
        self.ill()
        self.claims_gpus = self.claims_gpus if claims_gpus is None else claims_gpus
        self.world.live_again(dies_at)
        self.virtual.open_now.clear()
        self.moves = self._agent()
        await self.allocator.take_up()
        await self.driver.take_up()
        await self.moves.begin()
        await self.driver.serve_again()
        await self.allocator.kubelet_started()
        self.hear()

    def ill(self) -> None:
        for resource in (VCORE, VMEMORY):
            every = self.allocator.devices(resource)
            self.heard[resource] = tuple(one._replace(healthy=False) for one in every)

    def hear(self) -> None:
        self.devices_changed.clear()
        for resource in (VCORE, VMEMORY):
            self.heard[resource] = self.allocator.devices(resource)

    def publish(self) -> None:
        """As the agent does it: after a change that it was told of."""
        if not self.slice_changed.is_set():
            return
        self.slice_changed.clear()
        offered = (
            gpu.uuid
            for gpu in self.topology.gpus
            if gpu.uuid not in self.driver.node.closed(CLAIMS)
            and gpu.uuid not in self.driver.node.leaving
        )
        self.slice = frozenset(map(device_name, offered))

    def read_all(self) -> None:
        """Nobody is behind."""
        if self.devices_changed.is_set():
            self.hear()
        self.publish()
        self.scheduler = self.slice

    async def move(self, seconds: float = 0.0) -> None:
        self.seconds += seconds
        await self.moves.move()

    async def arrive(self) -> None:
        """All GPUs are where they should be, as far as those who use them let them."""
        for _ in range(6):
            self.read_all()
            await self.move(QUIET)
        self.read_all()

    def named(self, devices: Collection[str]) -> frozenset[GpuUUID]:
        return frozenset(g.uuid for g in self.topology.gpus if device_name(g.uuid) in devices)

    async def device_pod(self, pod: PodView) -> bool:
        """Admitted and started; False where the kubelet refuses it."""
        try:
            await self.admit(pod)
        except AdmissionRefused:
            return False
        self.pods[pod.uid] = pod
        self.listing.listed[pod.uid] = replace(pod, phase="Running")
        await self.start(pod)
        return True

    def end_device_pod(self, pod: PodView) -> None:
        del self.pods[pod.uid]
        self.listing.listed[pod.uid] = replace(pod, phase="Succeeded")

    def claim(self, name: str, device: str, cores: int, blocks: int) -> ClaimRef:
        """Allocated, and bound to a pod of the same name."""
        one = result(device, cores, f"{blocks * MIB}Mi")
        self.api.items["default", name] = claim_item(name, one, pods=(name,))
        self.api.pods["default", name] = pod_item(name, {"main": [(name, "")]})
        return ClaimRef("default", name, f"uid-{name}")

    async def prepare(self, claim: ClaimRef) -> str:
        """Why not; empty when it is."""
        answer = await self.driver.prepare(claim)
        if isinstance(answer, Refused):
            return answer.text
        self.prepared.add(claim.name)
        return ""

    async def end_claim(self, claim: ClaimRef) -> None:
        await self.driver.unprepare(claim)
        self.prepared.discard(claim.name)
        del self.api.items["default", claim.name]

    def had(self) -> list[Had]:
        """What running pods have, by what they asked for and were answered."""
        names = {device_name(gpu.uuid): gpu.uuid for gpu in self.topology.gpus}
        asked = {
            (pod.uid, one.name): (one.cores or 0, one.blocks or 0)
            for pod in self.pods.values()
            for one in pod.containers
        }
        devices = (
            Had(gpu, "devices", *asked[key])
            for key, edits in self.answers.items()
            if key in asked
            for gpu in edits.envs["VCUDA_GPUS"].split(",")
        )
        claims = (
            Had(names[one.name], "claims", one.cores or 0, one.blocks or 0)
            for claim in self.prepared
            for one in read_claim(self.api.items["default", claim]).devices
        )
        return [*devices, *claims]

    def judge(self) -> None:
        """No GPU is given twice, nor offered by both."""
        on: defaultdict[str, list[Had]] = defaultdict(list)
        for one in self.had():
            on[one.gpu].append(one)
        for gpu, rows in on.items():
            assert len({one.interface for one in rows}) == 1, (gpu, rows)
            assert sum(one.cores for one in rows) <= 100, (gpu, rows)
            assert sum(one.blocks for one in rows) <= BLOCKS, (gpu, rows)
        assert not self.offered_as_devices() & self.named(self.slice)

    def offered_as_devices(self) -> frozenset[GpuUUID]:
        """GPUs of which the kubelet takes any device for healthy."""
        ids = self.allocator.ledger.ids
        heard = (one for rows in self.heard.values() for one in rows if one.healthy)
        return frozenset(ids.gpu_of(one.device_id).uuid for one in heard)
