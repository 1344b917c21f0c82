"""Which containers of a pod use which requests of which claims, read from its JSON object. Pure.

A pod names its claims. A container names one of them, and optionally one request of it. The kubelet
gives a container without a request the devices of all requests.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.ids import PodUID
from gpumanager.kube.pod import asks_for_graphics
from gpumanager.names import VCORE, VMEMORY

ALL: Final = ""
"""The request of a container that names none."""


ENDED: Final = ("Succeeded", "Failed")
"""Phases after which a pod never runs again."""


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """claim: the ResourceClaim's name. request: ALL for whatever it has. graphics: whether the
    container may get OpenGL, EGL and Vulkan."""

    container: str
    claim: str
    request: str
    graphics: bool = True


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod, and what its containers use, init containers and sidecars too.

    ended: it has, or is told to. finished: it has. shares: containers that ask for GPUs by device
    plugins, too.
    """

    uid: PodUID
    namespace: str
    name: str
    uses: tuple[ClaimUse, ...] = ()
    ended: bool = False
    finished: bool = False
    shares: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_pod_claims(item: Any) -> PodClaims:
    """Raises KeyError, TypeError, AttributeError where it is no pod."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    finished = status.get("phase") in ENDED
    return PodClaims(
        PodUID(metadata["uid"]),
        metadata["namespace"],
        metadata["name"],
        (*_named(spec, _claims(spec, status)), *_extended(status)),
        ended=finished or bool(metadata.get("deletionTimestamp")),
        finished=finished,
        shares=tuple(one["name"] for one in _containers(spec) if _has_share(one)),
    )


def _containers(spec: Any) -> Iterator[Any]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _has_share(container: Any) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(str(limits.get(name, "0")) != "0" for name in (VCORE, VMEMORY))


def _claims(spec: Any, status: Any) -> Mapping[str, str]:
    """The pod's own names for them; one of a template is in the status once it was made."""
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in status.get("resourceClaimStatuses") or ()
    }
    found = {
        one["name"]: one.get("resourceClaimName") or made.get(one["name"])
        for one in spec.get("resourceClaims") or ()
    }
    return {name: claim for name, claim in found.items() if claim}


def _named(spec: Any, claims: Mapping[str, str]) -> Iterator[ClaimUse]:
    for container in _containers(spec):
        for one in (container.get("resources") or {}).get("claims") or ():
            if one["name"] in claims:
                request = one.get("request") or ALL
                graphics = asks_for_graphics(container)
                yield ClaimUse(container["name"], claims[one["name"]], request, graphics)


def _extended(status: Any) -> Iterator[ClaimUse]:
    """Of the claim that the scheduler made for an extended resource."""
    extended = status.get("extendedResourceClaimStatus") or {}
    for one in extended.get("requestMappings") or ():
        yield ClaimUse(one["containerName"], extended["resourceClaimName"], one["requestName"])
