"""What an agent tells of its decisions, `/api/placement`, as values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import CORES_PER_GPU, Bytes
from gpumanager.view.metrics import NotAnAgent, printable
from gpumanager.view.values import of_users


@dataclass(frozen=True, slots=True)
class PlacedGrant:
    """What one container was granted. pod: namespace/name, empty where nobody knows yet.

    expected: the pod that was thought to be admitted, where another one got the grant. rule: the
    evaluator's name. time: seconds since the epoch. confirmed: it has started, or is about to.
    unlimited: how many of its processes no limit holds for, by what they lack. shares: cores and
    blocks of each GPU, by UUID. claim: name and requests of the claim, if it came by one; admin: it
    looks, and holds nothing. users: all containers that share the claim, by pod and name.
    """

    pod: str
    container: str
    gpus: tuple[int, ...]
    uuids: tuple[str, ...]
    cores: int
    blocks: int
    ceiling: int | None
    whole: bool
    rule: str
    why: str
    time: float
    confirmed: bool
    expected: str = ""
    suspect: bool = False
    legacy: bool = False
    unlimited: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    claim: str = ""
    requests: tuple[str, ...] = ()
    admin: bool = False
    users: tuple[tuple[str, str], ...] = ()

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

    def of(self, gpu: str) -> tuple[int, int]:
        """Return cores and blocks of one of its GPUs, by UUID."""
        return self.shares.get(gpu, (self.cores, self.blocks))


@dataclass(frozen=True, slots=True)
class PlacementEvent:
    """kind: refused, put-off or swapped. time: of the last of `count`, seconds since the epoch.

    claim: namespace/name of the claim that it was about, if any.
    """

    kind: str
    pod: str
    container: str
    text: str
    time: float
    count: int
    claim: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """time: of the answer, seconds since the epoch."""

    node: str
    time: float
    topology: Topology
    grants: tuple[PlacedGrant, ...] = ()
    happened: tuple[PlacementEvent, ...] = field(default=())


def read_placement(document: Mapping[str, Any]) -> Placement:
    """Read the document. Raises NotAnAgent."""
    try:
        machine = document["topology"]
        gpus = [
            Gpu(
                index=int(one["index"]),
                minor=int(one["minor"]),
                uuid=GpuUUID(printable(one["uuid"])),
                bus_id=printable(one["bus_id"]),
                model=printable(one["model"]),
                memory=Bytes(int(one["memory_bytes"])),
                numa_node=None if one["numa_node"] is None else int(one["numa_node"]),
            )
            for one in machine["gpus"]
        ]
        bonds = [
            [None if bond is None else Bond(Level[bond[0]], int(bond[1])) for bond in row]
            for row in machine["bonds"]
        ]
        happened = tuple(
            PlacementEvent(
                kind=_text(one["kind"]),
                pod=_text(one["pod"]),
                container=_text(one["container"]),
                text=_text(one["text"]),
                time=float(one["time"]),
                count=int(one["count"]),
                claim=_text(one.get("claim")),
            )
            for one in document["happened"]
        )
        return Placement(
            node=printable(document["node"]),
            time=float(document["time"]),
            topology=topology(gpus, bonds),
            grants=tuple(_grant(one) for one in document["promises"]),
            happened=happened,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        cause = "answers, but not as this version's node agent does"
        raise NotAnAgent(cause) from error


def _grant(said: Mapping[str, Any]) -> PlacedGrant:
    # Agents of before report no claims.
    claim = said.get("claim") or {"name": None, "requests": (), "admin": False}
    users = said.get("users", ()) if said.get("claim") else ()
    return PlacedGrant(
        pod=_text(said["pod"]),
        container=_text(said["container"]),
        gpus=tuple(int(one) for one in said["gpus"]),
        uuids=tuple(_text(one) for one in said["uuids"]),
        cores=int(said["cores"]),
        blocks=int(said["blocks"]),
        ceiling=None if said["ceiling"] is None else int(said["ceiling"]),
        whole=bool(said["whole"]),
        rule=_text(said["rule"]),
        why=_text(said["why"]),
        time=float(said["time"]),
        confirmed=said["state"] == "settled",
        expected=_text(said["thought"]),
        suspect=bool(said["doubted"]),
        legacy=bool(said["inherited"]),
        unlimited={printable(key): int(n) for key, n in said.get("unlimited", {}).items()},
        shares={
            _text(uuid): (CORES_PER_GPU if one["whole"] else int(one["cores"]), int(one["blocks"]))
            for uuid, one in said.get("shares", {}).items()
        },
        claim=_text(claim["name"]),
        requests=tuple(map(_text, claim["requests"])),
        admin=bool(claim["admin"]),
        users=tuple(
            (_text(one["pod"]).partition("/")[2], _text(one["container"])) for one in users
        ),
    )


def _text(said: Any) -> str:
    return "" if said is None else printable(str(said))
