"""A node for the allocator's tests: GPUs, a virtual manager that only remembers, and a kubelet.

The kubelet keeps books as the real one does: it admits one pod at a time, asks for the resources in
any order, lets app containers reuse what init containers had, writes its checkpoint after the last
resource of a container, and forgets ended pods only when it next allocates.
"""

import base64
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.grants.device_ids import Device
from gpumanager.grants.grant import Claimant, ClaimSource
from gpumanager.grants.journal_file import CHANGE_BYTES, JournalFile
from gpumanager.grants.node import Node as GrantedNode
from gpumanager.grants.refusals import Refused
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID, ContainerID, PodUID
from gpumanager.isolation.cdi import AllocationFiles
from gpumanager.isolation.edits import ContainerEdits, DeviceFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.pod import ContainerKind, ContainerView, PodView
from gpumanager.legacy.checkpoint import FILE_NAME as ORIGINAL
from gpumanager.legacy.checkpoint import inherited_grants
from gpumanager.limits.values import Limit
from gpumanager.names import VCORE, VMEMORY
from gpumanager.runtime.status import Bind, Container, LiveContainer
from gpumanager.sim.in_memory import (
    ManualClock,
    SimulatedContainers,
    SimulatedLimits,
    SimulatedPods,
)
from gpumanager.units import MEMORY_BLOCK, Bytes
from gpumanager.volume.values import DriverVolumes

BLOCKS = 16
ORDERS = [(VCORE, VMEMORY), (VMEMORY, VCORE)]
"""In which a kubelet may ask for a container's two resources: as it happens."""

JOURNAL = "allocations.json"
VOLUMES = DriverVolumes(Path("/vol/nvidia"), Path("/vol/compute"), Path("/vol/origin"), "555.58.02")


def gpus(count: int, blocks: int = BLOCKS) -> Topology:
    """GPUs of 4 GiB; neighbours share a PCIe switch."""
    cards = [
        Gpu(
            index=i,
            minor=i,
            uuid=GpuUUID(f"GPU-{i:08x}-0000-0000-0000-{i:012x}"),
            bus_id=f"0000:{i:02x}:00.0",
            model="Tesla T4",
            memory=Bytes(blocks * MEMORY_BLOCK),
            numa_node=0,
        )
        for i in range(count)
    ]
    bonds = [
        [
            None if a == b else Bond(Level.PIX if a // 2 == b // 2 else Level.SYS)
            for b in range(count)
        ]
        for a in range(count)
    ]
    return topology(cards, bonds)


def container(
    cores: int | None,
    blocks: int | None,
    name: str = "main",
    kind: ContainerKind = ContainerKind.APP,
) -> ContainerView:
    return ContainerView(name, kind, cores, blocks)


def pod(name: str, *containers: ContainerView, **annotations: str) -> PodView:
    return PodView(
        uid=PodUID(f"uid-{name}"),
        namespace="default",
        name=name,
        phase="Pending",
        terminating=False,
        annotations={f"tencent.com/{k.replace('_', '-')}": v for k, v in annotations.items()},
        containers=containers,
    )


@dataclass
class Tenanted:
    """Whose processes the driver lists, if it does."""

    found: dict[GpuUUID, frozenset[PodUID]] | None = None

    async def pods(self) -> dict[GpuUUID, frozenset[PodUID]] | None:
        return self.found


@dataclass
class Annotated:
    """What pods were told of their GPUs."""

    gpus: dict[tuple[PodUID, str], tuple[str, ...]] = field(default_factory=dict)

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        self.gpus[pod.uid, pod.container] = tuple(gpu.uuid for gpu in gpus)


class Crash(BaseException):
    """The node stops here."""


class CrashingFile(JournalFile):
    """Stops before or after one step of saving; `skip` of these go well before."""

    def __init__(
        self, path: Path, step: str, *, after: bool, skip: int = 0, room: int = CHANGE_BYTES
    ) -> None:
        super().__init__(path, room)
        self.skip = skip
        run: Callable[..., None] = getattr(self, step)

        def stop(*arguments: bytes) -> None:
            if self.skip:
                self.skip -= 1
                run(*arguments)
                return
            if after:
                run(*arguments)
            raise Crash

        setattr(self, step, stop)


class AdmissionRefused(Exception):
    """UnexpectedAdmissionError, with the plugin's text."""


Key = tuple[PodUID, str, str]
"""Pod, container, resource."""


class Node:
    """The node, its kubelet's books, and the allocator under test."""

    def __init__(self, directory: Path, topology_: Topology | None = None, seed: int = 0) -> None:
        self.topology = topology_ or gpus(2)
        self.directory = directory
        self.virtual = SimulatedLimits(directory)
        self.listing = SimulatedPods()
        self.clock = ManualClock(1_000_000.0, step=0.001)
        self.set_by = 0.0
        """Seconds by which somebody has set the node's clock."""
        self.random = random.Random(seed)
        self.held: dict[Key, set[str]] = {}
        self.answers: dict[tuple[PodUID, str], ContainerEdits] = {}
        self.heard: dict[str, tuple[Device, ...]] = {}
        """The devices that the kubelet was told of; where nothing is here it hears at once."""
        self.share_mode = True
        self.gpu_policy = "binpack"
        self.runtime = SimulatedContainers()
        self.tenants = Tenanted()
        self.annotated = Annotated()
        self.claims: dict[tuple[PodUID, str], ClaimSource] = {}
        """By container: a claim that it uses."""
        self.handover: AllocationFiles | None = None
        self.allocator = self.new_allocator()

    def new_allocator(self, journal: JournalFile | None = None) -> Allocator:
        isolation = Isolations(
            self.virtual,
            VOLUMES,
            DeviceFiles(Path("/dev"), control_if_present=()),
            self.handover,
        )
        store = GrantStore(journal or JournalFile(self.directory / JOURNAL), isolation)
        return Allocator(
            GrantedNode(self.topology, store),
            Dependencies(
                isolation=isolation,
                books=DeviceCheckpoint(self.directory / "kubelet_internal_checkpoint"),
                pods=self.listing,
                runtime=self.runtime,
                tenants=self.tenants.pods,
                annotate=self.annotated.correct,
                inherited=partial(inherited_grants, self.directory / ORIGINAL),
                share_mode=self.share_mode,
                gpu_policy=self.gpu_policy,
                claim_of=lambda who: self.claims.get((who.uid, who.container)),
                grace=0.0,
                clock=lambda: self.clock() + self.set_by,
                elapsed=self.clock,
            ),
        )

    async def restart_agent(self) -> None:
        """A new process: what was open is served no more until it is opened again."""
        await self.register_new_agent()
        await self.allocator.serve_again()

    async def register_new_agent(self) -> None:
        """A new process that the kubelet knows, and that has not served anything again yet."""
        self.virtual.open_now.clear()
        self.allocator = self.new_allocator()
        await self.allocator.take_up()
        await self.allocator.kubelet_started()

    async def admit(self, pod: PodView, *, order: Sequence[str] | None = None) -> None:
        """As HandlePodAdditions does; raises AdmissionRefused after setting the pod Failed."""
        self.listing.listed[pod.uid] = pod
        self.forget_ended(pod.uid)
        reusable: dict[str, set[str]] = {VCORE: set(), VMEMORY: set()}
        try:
            for one in pod.containers:
                await self._admit_container(pod, one, reusable, order)
        except AdmissionRefused:
            self.fail(pod.uid)
            raise

    async def _admit_container(
        self,
        pod: PodView,
        one: ContainerView,
        reusable: dict[str, set[str]],
        order: Sequence[str] | None,
    ) -> None:
        sizes = {VCORE: one.cores or 0, VMEMORY: one.blocks or 0}
        resources = [r for r in order or self.random.sample([VCORE, VMEMORY], 2) if sizes[r]]
        for resource in resources:
            ids = await self.choose(resource, sizes[resource], reusable[resource])
            answer = await self.allocator.allocate(resource, sorted(ids))
            if isinstance(answer, Refused):
                raise AdmissionRefused(answer.text)
            self.held[pod.uid, one.name, resource] = ids
            if resource == VCORE:
                self.answers[pod.uid, one.name] = answer
            if one.kind is ContainerKind.INIT:
                reusable[resource] |= ids
            else:
                reusable[resource] -= ids
        self.write_checkpoint()

    async def choose(self, resource: str, size: int, reusable: set[str]) -> set[str]:
        chosen = set(self.random.sample(sorted(reusable), min(size, len(reusable))))
        if len(chosen) == size:
            return chosen
        free = self.free(resource) - chosen
        if len(free) + len(chosen) < size:
            raise AdmissionRefused(f"requested number of devices unavailable for {resource}")
        if size - len(chosen) < len(free):
            offered = self.random.sample(sorted(free | chosen), len(free | chosen))
            preferred = await self.allocator.preferred(resource, offered, sorted(chosen), size)
            assert len(preferred) == size
            assert chosen <= set(preferred)
            return set(preferred)
        return chosen | free

    def free(self, resource: str) -> set[str]:
        devices = self.heard.get(resource) or self.allocator.devices(resource)
        every = {one.device_id for one in devices if one.healthy}
        held = [ids for (_, _, r), ids in self.held.items() if r == resource]
        return every.difference(*held)

    async def start(self, pod: PodView, name: str = "main") -> None:
        """PreStartContainer for each resource of a container, in any order."""
        resources = [r for r in (VCORE, VMEMORY) if (pod.uid, name, r) in self.held]
        for resource in self.random.sample(resources, len(resources)):
            await self.allocator.pre_start(resource, sorted(self.held[pod.uid, name, resource]))

    async def run(self, pod: PodView) -> None:
        await self.admit(pod)
        for one in pod.containers:
            await self.start(pod, one.name)

    def fail(self, uid: PodUID, phase: str = "Failed") -> None:
        """The pod has ended; its devices are forgotten at the next allocation."""
        if uid in self.listing.listed:
            self.listing.listed[uid] = replace(self.listing.listed[uid], phase=phase)

    def delete(self, uid: PodUID) -> None:
        self.listing.listed.pop(uid, None)

    def forget_ended(self, *admitted: PodUID) -> None:
        """As at each allocation: whoever has ended holds nothing."""
        active = {p.uid for p in self.listing.listed.values() if not p.ended} | {*admitted}
        self.held = {key: ids for key, ids in self.held.items() if key[0] in active}

    def write_checkpoint(self) -> None:
        entries = [
            {
                "PodUID": uid,
                "ContainerName": name,
                "ResourceName": resource,
                "DeviceIDs": {"0": sorted(ids)},
                "AllocResp": self._response(uid, name) if resource == VCORE else "",
            }
            for (uid, name, resource), ids in self.held.items()
        ]
        document = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
        path = self.directory / "kubelet_internal_checkpoint"
        path.write_text(json.dumps(document))

    def _response(self, uid: PodUID, name: str) -> str:
        answered = self.answers.get((uid, name))
        envs = answered.envs if answered else {}
        return base64.b64encode(
            pb.ContainerAllocateResponse(envs=envs).SerializeToString()
        ).decode()

    def live_container(self, pod: PodView, name: str = "main") -> LiveContainer:
        """As the runtime tells of it, once it runs."""
        answer = self.answers[pod.uid, name]
        return LiveContainer(
            Container(ContainerID(f"id-{pod.uid}-{name}"), pod.uid, pod.namespace, pod.name, name),
            mounts=tuple(Bind(one.host_path, one.container_path) for one in answer.mounts),
            envs=answer.envs,
            annotations=answer.annotations,
        )

    def limits(self, pod: PodView, name: str = "main") -> tuple[Limit, ...]:
        allocation = self.answers[pod.uid, name].envs["VCUDA_ALLOCATION"]
        return self.virtual.open_now[AllocationID(allocation)]

    def gpus_of(self, pod: PodView, name: str = "main") -> tuple[str, ...]:
        return tuple(
            device.container_path
            for device in self.answers[pod.uid, name].devices
            if device.container_path.removeprefix("/dev/nvidia").isdigit()
        )
