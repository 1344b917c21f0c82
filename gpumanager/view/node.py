"""A node as people look at it: GPUs, the containers that have some of them, and what happened.

Values only, read from the document that an agent serves at `/api/node`, or from one of the nodes
in the extender's `/api/cluster` (`node.schema.json`). What a server does not know is None. Texts
are made fit for a terminal first: names come from those who create pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import Bytes


class NotAnAgent(GpuManagerError):
    """Something answered, and it is not the document of a node."""


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """One container on one GPU; of a shared claim, the first of all that share its limits.

    container: empty for a pod as a whole. limit, used, peak: bytes by the books; measured: bytes by
    the driver. granted (None: not known), ceiling, share, busy: percent of the GPU's time; share by
    the books since the agent's last sample, busy by the driver. whole: the GPU is not shared, and
    there are no books. throttled_seconds: for how long its launches were throttled, refusals: how
    many allocations were refused, both since it started; throttled: percent of the last seconds
    that its launches were throttled; None where only one sample is known. unlimited: processes for
    which no limit holds, by what they lack (`view.story`). claim: name and requests of the claim
    that it has the GPU by, if any; users: all containers that use that one, by pod and name.
    """

    namespace: str
    pod: str
    container: str
    limit: int
    granted: int | None
    ceiling: int | None
    whole: bool = False
    used: int | None = None
    peak: int | None = None
    measured: int | None = None
    share: float | None = None
    busy: int | None = None
    throttled_seconds: float | None = None
    throttled: float | None = None
    launches: int | None = None
    throttled_launches: int | None = None
    refusals: int | None = None
    processes: int = 0
    unlimited: Mapping[str, int] = field(default_factory=dict)
    claim: tuple[str, str] | None = None
    users: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Return all containers that share a claim: `default/train:main,side eval:main`."""
        return f"{self.namespace}/{of_users(self.users or ((self.pod, self.container),))}"

    @property
    def short(self) -> str:
        """Return the name without the containers: `default/train`, or `default/train +1`."""
        others = len({pod for pod, _ in self.users} - {self.pod})
        return f"{self.namespace}/{self.pod}" + (f" +{others}" if others else "")

    @property
    def held(self) -> int | None:
        """Return bytes: by the books, or where there are none by the driver."""
        return self.measured if self.used is None else self.used

    @property
    def taken(self) -> float | None:
        """Return percent of the GPU's time: by the books, or where there are none by the driver."""
        return self.busy if self.share is None else self.share


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU. memory…: bytes. cores: percent of its time that is granted. xids: how many.

    healthy: new containers may get it; `closed` is the extender's word for one that is not.
    """

    index: int
    uuid: str
    model: str
    bus_id: str
    healthy: bool
    memory: int
    memory_granted: int
    cores: int
    memory_used: int | None = None
    busy: int | None = None
    celsius: int | None = None
    watts: float | None = None
    xids: int = 0
    containers: tuple[ContainerRow, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedGrant:
    """What one container was granted. pod: namespace/name, empty where it is not known yet.

    expected: the pod that was expected to be admitted, where another one got the grant. evaluator:
    its name. time: seconds since the epoch. confirmed: the container has started, or is about to.
    unlimited: how many of its processes no limit holds for, by what they lack. shares: percent and
    bytes of each GPU, by UUID; gpus: the indices of those that are there. whole: UUIDs of GPUs
    that it does not share. claim: namespace/name, and its requests, if it came by one; admin: it
    holds nothing. users: all containers that share the claim, by pod and name.
    """

    pod: str
    container: str
    gpus: tuple[int, ...]
    evaluator: str
    why: str
    time: float
    confirmed: bool
    expected: str = ""
    suspect: bool = False
    legacy: bool = False
    unlimited: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    claim: str = ""
    requests: tuple[str, ...] = ()
    admin: bool = False
    users: tuple[tuple[str, str], ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """As the server has it."""

    @property
    def name(self) -> str:
        """Return all containers that share it: `default/train:main,side eval:main`."""
        if not self.pod:
            return "not known yet"
        namespace, _, pod = self.pod.partition("/")
        return f"{namespace}/{of_users(self.users or ((pod, self.container),))}"

    def is_for(self, pod: str) -> bool:
        """Return whether a pod has it. pod: namespace/name."""
        namespace, _, name = pod.partition("/")
        used = self.pod.startswith(f"{namespace}/") and any(name == user for user, _ in self.users)
        return used or self.pod == pod


@dataclass(frozen=True, slots=True)
class PastEvent:
    """kind: as the schema lists them. subject: namespace/pod/container, a GPU, or the node.

    time: of the last of `count`, seconds since the epoch. claim: namespace/name of the claim that
    it is about, if any.
    """

    kind: str
    subject: str
    message: str
    time: float
    count: int
    claim: str = ""
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def is_for(self, pod: str) -> bool:
        """Return whether it happened to a container of a pod. pod: namespace/name."""
        return self.subject.startswith(f"{pod}/")


NO_GPUS: Final = Topology((), ())


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node at one sample.

    answers: whether the driver does. unregistered: resources that the kubelet does not know.
    topology: without GPUs where it is not known. document: as the server has it.
    """

    name: str
    version: str
    answers: bool
    unregistered: tuple[str, ...]
    gpus: tuple[GpuRow, ...]
    topology: Topology = NO_GPUS
    grants: tuple[PlacedGrant, ...] = ()
    events: tuple[PastEvent, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def containers(self) -> int:
        """Return how many different ones have GPUs here."""
        return len({row.name for gpu in self.gpus for row in gpu.containers})


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
    def name(self) -> str:
        """Return the node's name, or where its agent is."""
        known = self.node.name if self.node else ""
        return known or self.agent.partition("//")[2].rstrip("/") or self.agent

    @property
    def away(self) -> bool:
        return bool(self.trouble)

    def as_json(self) -> dict[str, Any]:
        """Return the node's document, with the agent that it is from; or why there is none."""
        if self.node is None:
            return {"agent": self.agent, "error": self.trouble}
        return {"agent": self.agent, **self.node.document}


def of_users(users: Iterable[tuple[str, str]]) -> str:
    """List containers by pod and name, each pod once: `train:main,side eval:main`."""
    pods: dict[str, list[str]] = {}
    for pod, container in users:
        pods.setdefault(pod, []).append(container)
    return " ".join(f"{pod}:{','.join(names)}".rstrip(":") for pod, names in pods.items())


def printable(text: str) -> str:
    """Return the text with nothing in it that moves a cursor or changes a colour."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def read_node(document: Mapping[str, Any], version: str = "") -> NodeView:
    """Read a node's document. version: of the server, where the document has none.

    Raises NotAnAgent.
    """
    try:
        rows: dict[str, list[ContainerRow]] = {}
        for one in document["containers"]:
            if one.get("state", "confirmed") == "confirmed":
                for device in one["gpus"] or ():
                    rows.setdefault(_text(device["uuid"]), []).append(_row(one, device))
        gpus = [_gpu(one, rows.get(_text(one["uuid"]), ())) for one in document["gpus"]]
        return NodeView(
            name=_text(document["node"]),
            version=_text(document.get("version")) or version,
            answers=bool(document.get("driver_answers", True)),
            unregistered=tuple(map(_text, document.get("not_registered", ()))),
            gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))),
            topology=_topology(document) if "links" in document else NO_GPUS,
            grants=tuple(map(_grant, document["containers"])),
            events=tuple(map(_event, document.get("events", ()))),
            document=document,
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise NotAnAgent("answers, but not as this version's node agent does") from error


def _gpu(one: Mapping[str, Any], rows: Iterable[ContainerRow]) -> GpuRow:
    return GpuRow(
        index=int(one["index"]),
        uuid=_text(one["uuid"]),
        model=_text(one["model"]),
        bus_id=_text(one.get("bus_id")),
        healthy=bool(one["healthy"]),
        memory=int(one["memory_bytes"]),
        memory_granted=int(one["memory_granted_bytes"]),
        cores=int(one["cores_granted_percent"]),
        memory_used=_int(one.get("memory_used_bytes")),
        busy=_int(one.get("utilization_percent")),
        celsius=_int(one.get("temperature_celsius")),
        watts=_float(one.get("power_watts")),
        xids=sum(map(int, one.get("xid_errors", {}).values())),
        containers=tuple(sorted(rows, key=lambda row: row.name)),
    )


def _row(one: Mapping[str, Any], device: Mapping[str, Any]) -> ContainerRow:
    return ContainerRow(
        namespace=_text(one["namespace"]),
        pod=_text(one["pod"]),
        container=_text(one.get("container")),
        limit=_int(device["memory_limit_bytes"]) or 0,
        granted=_int(device["share_granted_percent"]),
        ceiling=_int(device.get("share_ceiling_percent")),
        whole=bool(device.get("whole")),
        used=_int(device.get("memory_used_bytes")),
        peak=_int(device.get("memory_peak_bytes")),
        measured=_int(device.get("memory_measured_bytes")),
        share=_float(device.get("share_percent")),
        busy=_int(device.get("utilization_percent")),
        throttled_seconds=_float(device.get("throttled_seconds")),
        launches=_int(device.get("launches")),
        throttled_launches=_int(device.get("launches_throttled")),
        refusals=_int(device.get("memory_refusals")),
        processes=_int(device.get("processes")) or 0,
        unlimited=_counts(one.get("unlimited_processes", {})),
        claim=(_text(one["claim"]), ", ".join(map(_text, one.get("requests", ()))))
        if one.get("claim")
        else None,
        users=_users(one) if one.get("claim") else (),
    )


def _grant(one: Mapping[str, Any]) -> PlacedGrant:
    namespace, state = _text(one["namespace"]), _text(one.get("state", "confirmed"))
    devices = one["gpus"] or ()
    return PlacedGrant(
        pod=f"{namespace}/{_text(one['pod'])}" if one["pod"] else "",
        container=_text(one.get("container")),
        gpus=tuple(sorted(int(d["index"]) for d in devices if d["index"] is not None)),
        evaluator=_text(one.get("evaluator")),
        why=_text(one.get("why")),
        time=float(one.get("admitted", 0)),
        confirmed=state != "allocated",
        expected=_text(one.get("expected_pod")),
        suspect=bool(one.get("suspect")),
        legacy=bool(one.get("legacy")),
        unlimited=_counts(one.get("unlimited_processes", {})),
        shares={
            _text(d["uuid"]): (
                _int(d["share_granted_percent"]) or 0,
                _int(d["memory_limit_bytes"]) or 0,
            )
            for d in devices
        },
        whole=frozenset(_text(d["uuid"]) for d in devices if d.get("whole")),
        claim=f"{namespace}/{_text(one['claim'])}" if one.get("claim") else "",
        requests=tuple(map(_text, one.get("requests", ()))),
        admin=state == "admin",
        users=_users(one) if one.get("claim") else (),
        document=one,
    )


def _event(one: Mapping[str, Any]) -> PastEvent:
    return PastEvent(
        kind=_text(one["kind"]),
        subject=_text(one["subject"]),
        message=_text(one["message"]),
        time=float(one["time"]),
        count=int(one["count"]),
        claim=_text(one.get("claim")),
        document=one,
    )


def _topology(document: Mapping[str, Any]) -> Topology:
    gpus = [
        Gpu(
            index=int(one["index"]),
            minor=int(one["minor"]),
            uuid=GpuUUID(_text(one["uuid"])),
            bus_id=_text(one["bus_id"]),
            model=_text(one["model"]),
            memory=Bytes(int(one["memory_bytes"])),
            numa_node=_int(one["numa_node"]),
        )
        for one in document["gpus"]
    ]
    links = [
        [None if bond is None else Bond(Level[bond[0]], int(bond[1])) for bond in row]
        for row in document["links"]
    ]
    return topology(gpus, links)


def _users(one: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((_text(user["pod"]), _text(user["container"])) for user in one.get("users", ()))


def _counts(found: Mapping[str, Any]) -> dict[str, int]:
    return {printable(key): int(count) for key, count in found.items()}


def _text(told: Any) -> str:
    return "" if told is None else printable(str(told))


def _int(told: Any) -> int | None:
    return None if told is None else int(told)


def _float(told: Any) -> float | None:
    return None if told is None else float(told)
