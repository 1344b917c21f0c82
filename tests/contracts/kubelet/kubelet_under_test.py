"""What the contract tests ask of a kubelet, the simulated one or a real one.

Pods here are of two made-up resources, so that no agent is in the way: the plugins are the tests'
own. Each implementation says which version it is to have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet.pods import PodsSource
from gpumanager.sim.kubelet.versions import KubeletVersion

ALPHA: Final = "contract.example/thing-alpha"
BETA: Final = "contract.example/thing-beta"


@dataclass(frozen=True, slots=True)
class SketchedContainer:
    """asks: amount by resource. ends: by itself, well, after a moment; else it stays.

    starts: how often it is to have been started; all but the last time it fails by itself.
    """

    name: str = "main"
    kind: ContainerKind = ContainerKind.APP
    asks: Mapping[str, int] = field(default_factory=dict)
    ends: bool = False
    starts: int = 1


@dataclass(frozen=True, slots=True)
class Sketch:
    """A pod, as little of it as a kubelet's side of device plugins needs."""

    name: str
    containers: Sequence[SketchedContainer]


@dataclass(frozen=True, slots=True)
class Outcome:
    """uid: the pod's. reason, message: why it was rejected, else empty."""

    uid: str
    reason: str = ""
    message: str = ""


class KubeletUnderTest(Protocol):
    """One node of one kubelet; what is asynchronous ends with what it says, within its own bound.

    directory: of the device plugins. resources: the socket of PodResources. pods: by `/pods`.
    pods_api: the socket of its Pods API, if its version has one. seconds: for what the kubelet does
    by itself in the background.
    """

    version: KubeletVersion
    directory: Path
    resources: Path
    pods_api: Path
    pods: PodsSource
    seconds: float

    async def run(self, *sketches: Sketch) -> tuple[Outcome, ...]:
        """Bind the pods to this node, at once; until each is rejected or was started.

        Started is a pod whose init containers have ended, and whose others run or have ended, each
        as often as it is to be started.
        """

    async def delete(self, *uids: str) -> None:
        """Until they are gone from the API server and the node."""

    async def restart(self) -> None:
        """The kubelet alone; until it serves again."""

    async def capacity(self, resource: str) -> tuple[int, int]:
        """As the node says now: capacity and allocatable."""
