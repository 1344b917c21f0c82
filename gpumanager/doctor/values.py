"""What a doctor sees on a node, and what it says of it.

`ObservedNode` has an input of each check: what could be seen or, in its place, why it could not. A
finding is one line of the answer: what was found, whether that is well, and what to do where it is
not. It is wrong only where pods would get no GPU, or not what they were granted; what merely makes
something worse is a note.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from gpumanager.doctor.question import Unseen
from gpumanager.gpu.device_attributes import LoadedDriver
from gpumanager.gpu.values import Topology
from gpumanager.units import Bytes


class Verdict(Enum):
    """WELL: as it should be. NOTE: it works, with something less. WRONG: pods will not get GPUs,
    or not what they were granted.
    """

    WELL = "well"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """advice: what to do; empty where nothing is."""

    part: str
    verdict: Verdict
    found: str
    advice: str = ""


def well(part: str, found: str) -> Finding:
    return Finding(part, Verdict.WELL, found)


def note(part: str, found: str, advice: str) -> Finding:
    return Finding(part, Verdict.NOTE, found, advice)


def wrong(part: str, found: str, advice: str) -> Finding:
    return Finding(part, Verdict.WRONG, found, advice)


class ListeningSocket(Enum):
    """What listens at a socket's path. DEAD: the file is there and nothing listens."""

    ABSENT = "absent"
    DEAD = "dead"
    DENIED = "denied"
    LISTENS = "listens"


@dataclass(frozen=True, slots=True)
class Directory:
    """What a directory is for, and what the file system says of it or, where it is not there yet,
    of the nearest one above it.

    obstacle: why nothing could be written there; executable: whether code from there may run.
    """

    purpose: str
    path: Path
    obstacle: str | None
    free: Bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class InstalledDriver:
    """The driver's libraries on the host's disk."""

    version: str
    library: Path
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """One GPU that an agent leaves out or takes out of use; mild: that it goes on to use, or that
    is meant for others. advice: what to do, where that is not the usual."""

    gpu: str
    cause: str
    mild: bool = False
    advice: str = ""


@dataclass(frozen=True, slots=True)
class ClaimObjects:
    """What the API server has. denied: rights of an agent that the account has not.

    devices: of the node's slice. slice_differences: between it and what an agent would write; None:
    there is no slice. claims: of all namespaces, by UID; allocated: those that pods use here.
    """

    device_class: bool | Unseen
    denied: tuple[str, ...] | Unseen
    devices: int
    slice_differences: tuple[str, ...] | Unseen | None
    claims: Mapping[str, str] = field(default_factory=dict)
    allocated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedClaims:
    """What serves claims here. socket: by which the kubelet finds the driver, in registry.

    ready: what the agent says of itself. cdi_obstacle: why the runtime ignores CDI files, empty
    where it does not. cdi_files: UIDs of their claims. prepared: claims in the journal, by UID.
    """

    registry: Path
    socket: ListeningSocket
    ready: str | Unseen
    cdi_obstacle: str | Unseen
    cdi_directory: Path
    cdi_files: frozenset[str] | Unseen
    prepared: Mapping[str, str] | Unseen
    objects: ClaimObjects | Unseen


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """The driver and its GPUs.
    missing_nodes: device files that GPUs or the driver need and that are not there.
    missing_shims: our own libraries that are not built. troubles: of single GPUs.
    unlimited: libraries of the driver in containers that share a GPU which no limit holds for.
    hmm: whether kernels may reach pageable memory, past the limits of a share.

    The kubelet. listener: what listens on its socket. sockets: our own ones beside it. pods: how
    many it lists. held: device IDs of ours that its checkpoint says pods hold; None where there is
    no checkpoint yet. pod_resources: which calls it answers.

    Containers. runtime: which one answers by CRI. cgroups: their version; None for none. driver:
    the pods' cgroup driver; None while there is no pod to tell by. nvidia_defaults: files that make
    NVIDIA's runtime the default; nvidia_devices: CDI's descriptions of its devices.

    The agent's own place, as this process has it. takes_books_back: whether it may open what
    processes of other users have open. granted: how many containers the journal has grants for;
    None where there is no journal yet.

    managers: others that have this node's GPUs too; None without an API server. beside: whether the
    agent offers GPUs all the same. claims: None where the node serves none.
    """

    installed: InstalledDriver | Unseen
    loaded: LoadedDriver | Unseen
    topology: Topology | Unseen
    missing_nodes: tuple[Path, ...]
    missing_shims: tuple[Path, ...]
    troubles: tuple[Trouble, ...] | Unseen
    unlimited: tuple[str, ...] | Unseen
    hmm: bool | Unseen
    kubelet_socket: Path
    listener: ListeningSocket
    sockets: tuple[ListeningSocket, ...]
    version: str | Unseen
    pods: int | Unseen
    held: str | Unseen | None
    pod_resources: str | Unseen
    runtime: str | Unseen
    root: bool
    sees_all_processes: bool
    takes_books_back: bool
    open_files: int
    directories: tuple[Directory, ...] | Unseen
    granted: int | Unseen | None
    cgroups: str | None = None
    driver: str | None = None
    nvidia_defaults: tuple[Path, ...] = ()
    nvidia_devices: tuple[Path, ...] = ()
    managers: tuple[str, ...] | Unseen | None = None
    beside: bool = False
    claims: ObservedClaims | None = None
