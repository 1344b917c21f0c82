"""What happens on a simulated node while it runs, for whoever wants to show it."""

from collections.abc import Callable
from typing import NamedTuple

from gpumanager.sim.kubelet.pods import Rejection
from gpumanager.sim.manifest.pods import ContainerManifest, Pod


class NodeReady(NamedTuple):
    """The agent has registered its resources."""

    gpus: int


class PodAdmitted(NamedTuple):
    pod: Pod


class PodRefused(NamedTuple):
    pod: Pod
    rejection: Rejection


class ContainerStarted(NamedTuple):
    """gpus: their UUIDs, as VCUDA_GPUS says them; empty for none."""

    pod: Pod
    container: ContainerManifest
    gpus: str


class ContainerPrinted(NamedTuple):
    pod: Pod
    container: ContainerManifest
    line: str


class ContainerEnded(NamedTuple):
    pod: Pod
    container: ContainerManifest
    exit_code: int


Event = NodeReady | PodAdmitted | PodRefused | ContainerStarted | ContainerPrinted | ContainerEnded
OnEvent = Callable[[Event], None]
