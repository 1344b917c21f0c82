"""What the cases ask of a kubelet with claims, a simulated one or a real one.

Claims here are of a made-up driver, so that no agent is in the way: the drivers are the tests' own,
and the tests allocate the claims themselves, as a scheduler would. Each implementation says which
version it is to have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from gpumanager.sim.kubelet.versions import KubeletVersion

DRIVER: Final = "driver.contract.example"
ROW: Final = "row"
"""Name of a pod's only claim in `spec.resourceClaims`."""


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A ResourceClaim in `default`, allocated to this node: one device for each of its requests."""

    name: str
    requests: Sequence[str] = ("one",)
    driver: str = DRIVER


@dataclass(frozen=True, slots=True)
class ClaimingContainer:
    """uses: rows of its `resources.claims`, with requests or None for all. env: its own.

    starts: how often it is to have been started; all but the last time it fails by itself.
    """

    name: str = "main"
    uses: Sequence[tuple[str, str | None]] = ((ROW, None),)
    env: Mapping[str, str] = field(default_factory=dict)
    starts: int = 1


@dataclass(frozen=True, slots=True)
class ClaimingPod:
    """claims: names of ResourceClaims by row. reserved: those that are reserved for it; None: all.

    Its containers stay until they are stopped.
    """

    name: str
    claims: Mapping[str, str]
    containers: Sequence[ClaimingContainer] = (ClaimingContainer(),)
    reserved: Sequence[str] | None = None


class KubeletWithClaims(Protocol):
    """One node of one kubelet; `seconds` is for what the kubelet does by itself in the background.

    root: the kubelet's directory. cdi: a directory of CDI specs that its runtime reads.
    """

    version: KubeletVersion
    root: Path
    cdi: Path
    seconds: float

    def now(self) -> float:
        """Seconds of the kubelet's clock."""

    async def wait(self, seconds: float) -> None:
        """So long by that clock."""

    async def hurry(self, seconds: float) -> None:
        """Move that clock by so much, if that can be done; a real one goes on by itself."""

    async def allocate(self, claim: AllocatedClaim) -> str:
        """Make the claim; its UID."""

    async def free(self, name: str) -> None:
        """The claim is gone from the API server, whoever has it."""

    async def start(self, pod: ClaimingPod) -> str:
        """Make the pod, reserve its claims and bind it; its UID. Does not wait for anything."""

    async def starts(self, uid: str, container: str) -> int:
        """How often the container has been started so far."""

    async def environment(self, uid: str, container: str) -> Mapping[str, str]:
        """Of a container that was started."""

    async def delete(self, uid: str, *, force: bool = False) -> None:
        """Have the pod deleted, with no time to end. force: it is gone from the API server at once,
        before the kubelet knows. Does not wait.
        """

    async def gone(self, uid: str) -> bool:
        """Whether the API server has the pod no more."""

    async def warnings(self, uid: str) -> Sequence[tuple[str, str]]:
        """Reason and message of the pod's events."""

    async def health(self, uid: str, container: str) -> Sequence[Mapping[str, Any]]:
        """`allocatedResourcesStatus` in the pod's status."""

    async def publish(self, name: str, driver: str = DRIVER) -> None:
        """Make a ResourceSlice of this node."""

    async def slices(self) -> set[str]:
        """Names of the node's ResourceSlices."""

    async def restart(self) -> None:
        """The kubelet alone; until it serves again."""
