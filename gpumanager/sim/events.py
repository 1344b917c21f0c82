"""What happens on a simulated node while it runs, for whoever wants to show it."""

from collections.abc import Callable
from dataclasses import dataclass

from gpumanager.sim.kubelet.pods import Rejection
from gpumanager.sim.manifest.pods import ContainerManifest, Pod


@dataclass(frozen=True, slots=True)
class NodeReady:
    """The agent has registered its resources."""

    gpus: int


@dataclass(frozen=True, slots=True)
class PodAdmitted:
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodRefused:
    pod: Pod
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """gpus: their UUIDs, as VCUDA_GPUS says them; empty for none."""

    pod: Pod
    container: ContainerManifest
    gpus: str


@dataclass(frozen=True, slots=True)
class ContainerPrinted:
    pod: Pod
    container: ContainerManifest
    line: str


@dataclass(frozen=True, slots=True)
class ContainerEnded:
    pod: Pod
    container: ContainerManifest
    exit_code: int


Event = NodeReady | PodAdmitted | PodRefused | ContainerStarted | ContainerPrinted | ContainerEnded
OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore an event, for who wants to see nothing."""
    del event
