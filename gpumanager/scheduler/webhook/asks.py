"""What each container of a pod requests of GPUs, read from the AdmissionReview's pod. Pure.

Amounts are kept as written, because error messages quote them. If a limit is missing, the request
counts: such a pod wants GPUs, and Kubernetes rejects it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.kube.pod import CONFIG_MIRROR, LISTS, ContainerKind, kind_of
from gpumanager.kube.quantity import whole_number
from gpumanager.names import VCORE, VMEMORY, WHOLE_GPU
from gpumanager.placement.values import Request

RESOURCES: Final = (VCORE, VMEMORY)


@dataclass(frozen=True, slots=True)
class Amount:
    """Of one resource, as it is written; None where it is not."""

    limit: Any = None
    request: Any = None

    @property
    def written(self) -> Any:
        """Return what counts: the limit, or the request where there is none."""
        return self.request if self.limit is None else self.limit

    @property
    def number(self) -> int | None:
        """Return the amount: 0 for nothing; None for what is no whole number."""
        return 0 if self.written is None else whole_number(self.written)


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """What one container asks for.

    field: the list it stands in. place: where in that list. amounts: by resource. whole: of the
    extended resource of whole GPUs, which kube-scheduler turns into a claim. claims: the pod's own
    names of the claims that the container uses.
    """

    name: str
    kind: ContainerKind
    field: str
    place: int
    amounts: Mapping[str, Amount]
    whole: Amount = Amount()
    claims: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Return its name for people: `container main (spec.containers[0])`."""
        return f"container {self.name} (spec.{self.field}[{self.place}])"

    @property
    def wants_gpu(self) -> bool:
        """Return whether it asks for something, be it understood or not."""
        return any(amount.number != 0 for amount in self.amounts.values())

    @property
    def request(self) -> Request | None:
        """Return it as placement has it; None where an amount is no whole number or negative."""
        cores, blocks = self.amounts[VCORE].number, self.amounts[VMEMORY].number
        if cores is None or blocks is None or min(cores, blocks) < 0:
            return None
        return Request(cores, blocks)


def read_asks(pod: Any) -> tuple[ContainerAmounts, ...]:
    """Return those of its containers that ask for GPUs, init containers first; none for the mirror
    of a static pod, which is its kubelet's own. Raises as `NOT_UNDERSTOOD` has it."""
    if CONFIG_MIRROR in annotations(pod):
        return ()
    found = []
    for field in LISTS:
        for place, container in enumerate((pod.get("spec") or {}).get(field) or ()):
            resources = container.get("resources") or {}
            limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
            one = ContainerAmounts(
                name=str(container.get("name", "")),
                kind=kind_of(container, init=field != "containers"),
                field=field,
                place=place,
                amounts={key: Amount(limits.get(key), requests.get(key)) for key in RESOURCES},
                whole=Amount(limits.get(WHOLE_GPU), requests.get(WHOLE_GPU)),
                claims=tuple(str(claim["name"]) for claim in resources.get("claims") or ()),
            )
            if one.wants_gpu:
                found.append(one)
    return tuple(found)


def annotations(pod: Any) -> Mapping[str, Any]:
    return (pod.get("metadata") or {}).get("annotations") or {}
