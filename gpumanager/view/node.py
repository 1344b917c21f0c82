"""A node as people look at it: GPUs, the containers that have some of them, and what happened.

Values as the document has them that an agent serves at `/api/node`, or one of the nodes in the
extender's `/api/cluster`: `node.schema.json` says what each field means. What a server does not
know is None. Texts are made fit for a terminal first: names come from those who create pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import Bytes, format_bytes

NO_GPUS: Final = Topology((), ())


class NotAnAgent(GpuManagerError):
    """Something answered, and it is not the document of a node."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """What a container has of one GPU.

    throttled: percent of the last seconds that its launches were throttled; None where only one
    sample is known. It is not in the document.
    """

    index: int | None
    uuid: str
    share_granted_percent: int | None
    memory_limit_bytes: int | None
    share_ceiling_percent: int | None = None
    whole: bool = False
    memory_used_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_measured_bytes: int | None = None
    memory_refusals: int | None = None
    share_percent: float | None = None
    utilization_percent: int | None = None
    throttled_seconds: float | None = None
    launches: int | None = None
    launches_throttled: int | None = None
    processes: int = 0
    throttled: float | None = None

    @property
    def held(self) -> int | None:
        """Return bytes: by the books, or where there are none by the driver."""
        books = self.memory_used_bytes
        return self.memory_measured_bytes if books is None else books

    @property
    def taken(self) -> float | None:
        """Return percent of the GPU's time: by the books, or where there are none by the driver."""
        return self.utilization_percent if self.share_percent is None else self.share_percent

    @property
    def burst(self) -> bool:
        """Return whether it may take more than is granted, while others leave it."""
        return (self.share_ceiling_percent or 0) > (self.share_granted_percent or 0)


@dataclass(frozen=True, slots=True)
class UserRow:
    """A container that uses a claim."""

    namespace: str
    pod: str
    pod_uid: str
    container: str


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """What one container was granted, or all containers that share a claim."""

    namespace: str | None
    pod: str | None
    gpus: tuple[DeviceRow, ...] | None
    container: str | None = None
    state: str = "confirmed"
    admitted: float = 0.0
    evaluator: str = ""
    why: str = ""
    expected_pod: str | None = None
    suspect: bool = False
    legacy: bool = False
    claim: str | None = None
    requests: tuple[str, ...] = ()
    users: tuple[UserRow, ...] = ()
    unlimited_processes: Mapping[str, int] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[DeviceRow, ...]:
        return self.gpus or ()

    @property
    def containers(self) -> tuple[tuple[str, str], ...]:
        """Return all that it is for, by pod and name."""
        users = tuple((one.pod, one.container) for one in self.users if self.claim)
        return users or ((self.pod or "", self.container or ""),)

    @property
    def name(self) -> str:
        """Return all containers that share it: `default/train:main,side eval:main`."""
        return f"{self.namespace}/{of_users(self.containers)}" if self.pod else "not known yet"

    @property
    def short(self) -> str:
        """Return the name without the containers: `default/train`, or `default/train +1`."""
        others = len({pod for pod, _ in self.containers} - {self.pod})
        return f"{self.namespace}/{self.pod}" + (f" +{others}" if others else "")

    @property
    def claim_name(self) -> str:
        """Return `default/budget`; empty where it got its GPUs by no claim."""
        return f"{self.namespace}/{self.claim}" if self.claim else ""

    @property
    def from_claim(self) -> str:
        """Return `budget (request gpu)`, of the claim that it got its GPUs by."""
        return f"{self.claim} (request {', '.join(self.requests)})"

    def is_for(self, pod: str) -> bool:
        """Return whether a pod has it. pod: namespace/name."""
        return any(pod == f"{self.namespace}/{name}" for name, _ in self.containers)


@dataclass(frozen=True, slots=True)
class GpuRow:
    index: int
    uuid: str
    model: str
    healthy: bool
    memory_bytes: int
    memory_granted_bytes: int
    cores_granted_percent: int
    minor: int = 0
    bus_id: str = ""
    numa_node: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    xid_errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventRow:
    kind: str
    subject: str
    message: str
    time: float
    count: int
    claim: str | None = None


Share = tuple[ContainerRow, DeviceRow]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node at one sample. topology: without GPUs where it is not known. document: as the server
    has it."""

    node: str
    gpus: tuple[GpuRow, ...]
    containers: tuple[ContainerRow, ...]
    version: str = ""
    driver_answers: bool = True
    not_registered: tuple[str, ...] = ()
    links: tuple[tuple[tuple[str, int] | None, ...], ...] | None = None
    events: tuple[EventRow, ...] = ()
    topology: Topology = NO_GPUS
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def on(self, gpu: GpuRow) -> list[Share]:
        """Return the containers on a GPU, by name: those that have started."""
        found = [
            (one, device)
            for one in self.containers
            for device in one.devices
            if device.uuid == gpu.uuid and one.state == "confirmed"
        ]
        return sorted(found, key=lambda row: row[0].name)

    @property
    def shares(self) -> list[tuple[GpuRow, Share]]:
        return [(gpu, share) for gpu in self.gpus for share in self.on(gpu)]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one agent. agent: its URL. node: the last picture; None: there never was.

    at: monotonic seconds of that picture. trouble: why there is no newer one; empty: it is new.
    """

    agent: str
    node: NodeView | None = None
    at: float = 0.0
    trouble: str = ""

    @property
    def gpus(self) -> tuple[GpuRow, ...]:
        return self.node.gpus if self.node else ()

    @property
    def name(self) -> str:
        """Return the node's name, or where its agent is."""
        known = self.node.node if self.node else ""
        return known or self.agent.partition("//")[2].rstrip("/") or self.agent

    def as_json(self) -> dict[str, Any]:
        """Return the node's document, with the agent that it is from; or why there is none."""
        if self.node is None:
            return {"agent": self.agent, "error": self.trouble}
        return {"agent": self.agent, **self.node.document}


def granted(one: ContainerRow, device: DeviceRow) -> str:
    """Return `30 % and 1 GiB`, in words."""
    if one.state == "admin":
        return "admin access"
    if device.whole:
        several = len(one.devices) > 1
        return f"one of {len(one.devices)} whole GPUs" if several else "the whole GPU"
    memory = device.memory_limit_bytes or 0
    return f"{device.share_granted_percent or 0} %" + (
        f" and {format_bytes(memory)}" if memory else ""
    )


def short_model(model: str) -> str:
    """Return a model's name without the maker's."""
    return model.removeprefix("NVIDIA ").removeprefix("Tesla ")


def of_users(users: Iterable[tuple[str, str]]) -> str:
    """List containers by pod and name, each pod once: `train:main,side eval:main`."""
    pods: dict[str, list[str]] = {}
    for pod, container in users:
        pods.setdefault(pod, []).append(container)
    return " ".join(f"{pod}:{','.join(names)}".rstrip(":") for pod, names in pods.items())


def printable(text: str) -> str:
    """Return the text with nothing in it that moves a cursor or changes a colour."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _printable(found: Any) -> Any:
    """Return JSON with all its texts so."""
    match found:
        case str():
            return printable(found)
        case list():
            return [_printable(one) for one in found]
        case dict():
            return {printable(key): _printable(one) for key, one in found.items()}
    return found


def read_node(document: Mapping[str, Any], version: str = "") -> NodeView:
    """Read a node's document. version: of the server, where the document has none.

    Raises NotAnAgent.
    """
    try:
        found = msgspec.convert({"version": version, **_printable(document)}, NodeView)
        return replace(found, document=document, topology=_topology(found))
    except (msgspec.ValidationError, LookupError, TypeError, ValueError) as error:
        raise NotAnAgent("answers, but not as this version's node agent does") from error


def _topology(node: NodeView) -> Topology:
    if node.links is None:
        return NO_GPUS
    gpus = [
        Gpu(
            index=one.index,
            minor=one.minor,
            uuid=GpuUUID(one.uuid),
            bus_id=one.bus_id,
            model=one.model,
            memory=Bytes(one.memory_bytes),
            numa_node=one.numa_node,
        )
        for one in node.gpus
    ]
    links = [
        [None if bond is None else Bond(Level[bond[0]], bond[1]) for bond in row]
        for row in node.links
    ]
    return topology(gpus, links)
