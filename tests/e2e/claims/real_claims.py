"""Claims on a real cluster, and who holds how much of which device by them: an account of its own.

The scheduler allocates; the controllers make claims of templates, free and delete them. Added up is
`status.allocation` of the claims that the API server has, against what its ResourceSlices have.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from gpumanager.gpu.values import GpuUUID
from tests.e2e.cluster.api_client import ApiClient, Object
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_pods import UID, RealPods, prepared

RESOURCE: Final = "/apis/resource.k8s.io/v1"
CLAIMS: Final = f"{RESOURCE}/namespaces/default/resourceclaims"
TEMPLATES: Final = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
SLICES: Final = f"{RESOURCE}/resourceslices"
CLASSES: Final = f"{RESOURCE}/deviceclasses"
CLASS: Final = "gpu.tencent.com"
EVERY_GPU: Final = f"device.driver == '{CLASS}'"
COLLECTOR: Final = "garbage-collector-controller"
"""Who deletes a claim whose pod the claims' controller has not seen go. Tests of other parts make
pods whose owners never were, so it goes when those of claims end."""
CLAIM: Final = "gpu"
"""What the containers of these tests call the claim of their pod."""

Device = tuple[str, str]
"""Pool and name."""
Amounts = Mapping[str, Decimal]
"""By capacity, as cores and memory."""


def exactly(name: str, device_class: str, count: int = 1, **capacity: object) -> Object:
    """A request; capacity: what of each device, the whole of it where nothing is said."""
    return {"name": name, "exactly": _wanted(device_class, count, capacity)}


def first_available(name: str, **alternatives: Object) -> Object:
    """A request with alternatives, each as `exactly` has it, by their names."""
    rows = [{"name": key, **one["exactly"]} for key, one in alternatives.items()]
    return {"name": name, "firstAvailable": rows}


def admin(name: str, device_class: str, count: int, **capacity: object) -> Object:
    """As `exactly`, of a request that only looks."""
    wanted = _wanted(device_class, count, capacity)
    return {"name": name, "exactly": wanted | {"adminAccess": True}}


def _wanted(device_class: str, count: int, capacity: Object) -> dict[str, Any]:
    wanted: dict[str, Any] = {"deviceClassName": device_class, "count": count}
    if capacity:
        wanted["capacity"] = {"requests": {key: str(value) for key, value in capacity.items()}}
    return wanted


def holder(name: str, command: str, request: str | None = None) -> Object:
    """A container with the pod's claim, or one request of it."""
    claim = {"name": CLAIM} | ({"request": request} if request else {})
    return {
        "name": name,
        "image": "local",
        "command": ["sh", "-c", command],
        "env": [UID],
        "resources": {"claims": [claim]},
    }


def claiming(name: str, source: Object, *containers: Object) -> dict[str, Any]:
    """A pod with a claim. source: `resourceClaimName` or `resourceClaimTemplateName`."""
    spec = {
        "restartPolicy": "Never",
        "containers": list(containers),
        "resourceClaims": [{"name": CLAIM, **source}],
    }
    return prepared({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


@dataclass(frozen=True, slots=True)
class Allocated:
    """One device for one request, which may be an alternative: `gpu/second`.

    consumed: of its capacities. admin: to look only.
    """

    request: str
    device: Device
    consumed: Amounts
    admin: bool = False


@dataclass(frozen=True, slots=True)
class DeviceAccounts:
    """Of one moment. has: capacity of each device. held: what claims have of it."""

    has: Mapping[Device, Amounts]
    held: Mapping[Device, Counter[str]]

    @property
    def overbooked(self) -> list[Device]:
        """Devices of which more is held than they have; also those that are in no slice."""
        return [
            device
            for device, held in self.held.items()
            if any(held[name] > self.has.get(device, {}).get(name, 0) for name in held)
        ]


class RealClaims:
    """Objects of claims, which go with the test."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._last_first = ExitStack()

    def device_class(self, name: str, expression: str, **fields: str) -> str:
        """Of devices for which this is true in CEL. fields: more of its spec."""
        selectors = [{"cel": {"expression": expression}}]
        return self._create(CLASSES, name, {"selectors": selectors, **fields})

    def template(self, name: str, *requests: Object, **devices: object) -> Object:
        """The source of claims that each pod has for itself. devices: as `constraints`."""
        self._create(TEMPLATES, name, {"spec": {"devices": {"requests": requests, **devices}}})
        return {"resourceClaimTemplateName": name}

    def claim(self, name: str, *requests: Object) -> Object:
        """A claim that pods share."""
        self._create(CLAIMS, name, {"devices": {"requests": requests}})
        return {"resourceClaimName": name}

    def make(self, described: Object) -> None:
        """A claim or a template as a user writes it."""
        collection = {"ResourceClaim": CLAIMS, "ResourceClaimTemplate": TEMPLATES}
        self._create(
            collection[described["kind"]], described["metadata"]["name"], described["spec"]
        )

    def of_pod(self, uid: str) -> dict[str, Any]:
        """The claim that was made for a pod from its template."""
        (found,) = (one for one in self.all() if uid in _owners(one))
        return found

    def attribute(self, device: Device, name: str) -> Any:
        """What the slice says of a device."""
        (found,) = (
            one["attributes"][name]
            for each in self.slices()
            for one in each["spec"]["devices"]
            if device == (each["spec"]["pool"]["name"], one["name"])
        )
        (value,) = found.values()
        return value

    def uuid(self, device: Device) -> GpuUUID:
        """Of the GPU."""
        return GpuUUID(self.attribute(device, "uuid"))

    def all(self) -> list[dict[str, Any]]:
        return list(self._api.get(CLAIMS)["items"])

    def allocated(self) -> list[Allocated]:
        """Of all claims that there are."""
        return [one for claim in self.all() for one in allocated(claim)]

    def in_use(self) -> list[Allocated]:
        """Of claims that some pod has, or had.

        A claim of its own that no pod has may stay allocated: kube-scheduler takes back a pod's
        reservation and not the allocation, and the claims' controller frees only what was reserved
        (`syncClaim` of 1.37). Example: the API server is killed between allocation and binding, and
        the pod is deleted.
        """
        used = [
            claim
            for claim in self.all()
            if "ownerReferences" in claim["metadata"] or claim.get("status", {}).get("reservedFor")
        ]
        return [one for claim in used for one in allocated(claim)]

    def slices(self) -> list[dict[str, Any]]:
        return list(self._api.get(SLICES)["items"])

    def accounts(self) -> DeviceAccounts:
        return device_accounts(self.slices(), self.all())

    def wait_until_freed(self) -> None:
        """No claim has anything, once the pods are gone; fails with all claims."""
        try:
            wait_for(lambda: not self.in_use(), "all claims are freed")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.all()}") from None

    def remove(self) -> None:
        """After the pods."""
        self._last_first.close()

    def _create(self, collection: str, name: str, spec: Mapping[str, Any]) -> str:
        self._api.create(collection, {"metadata": {"name": name}, "spec": spec})
        self._last_first.callback(partial(self._api.delete, f"{collection}/{name}", 0))
        return name


@contextmanager
def claims_of(api: ApiClient, pods: RealPods) -> Iterator[RealClaims]:
    """For one test; then its pods go, and all objects of claims when nothing is allocated."""
    made = RealClaims(api)
    yield made
    pods.delete()
    made.wait_until_freed()
    made.remove()


def allocated(claim: Object) -> tuple[Allocated, ...]:
    """Empty while the scheduler has not decided, and after it is freed."""
    allocation = claim.get("status", {}).get("allocation", {})
    return tuple(
        Allocated(
            request=one["request"],
            device=(one["pool"], one["device"]),
            consumed=_amounts(one.get("consumedCapacity", {})),
            admin=bool(one.get("adminAccess")),
        )
        for one in allocation.get("devices", {}).get("results", ())
    )


def device_accounts(slices: Sequence[Object], claims: Sequence[Object]) -> DeviceAccounts:
    """Of what slices have and claims were given."""
    held: dict[Device, Counter[str]] = {}
    for one in (each for claim in claims for each in allocated(claim)):
        held.setdefault(one.device, Counter()).update({} if one.admin else one.consumed)
    return DeviceAccounts(dict(_capacities(slices)), held)


def _owners(claim: Object) -> set[str]:
    return {one["uid"] for one in claim["metadata"].get("ownerReferences", ())}


def _capacities(slices: Sequence[Object]) -> Iterator[tuple[Device, Amounts]]:
    for one in slices:
        for device in one["spec"].get("devices", ()):
            has = {name: each["value"] for name, each in device.get("capacity", {}).items()}
            yield (one["spec"]["pool"]["name"], device["name"]), _amounts(has)


def _amounts(written: Mapping[str, str]) -> Amounts:
    return {name: parse_quantity(value) for name, value in written.items()}
