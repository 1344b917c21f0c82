"""The DRA manager as values: claims, for whom and with which devices, and these's health. Pure.

Follows claiminfo.go, healthinfo.go, state/ and the decisions of manager.go in pkg/kubelet/cm/dra. A
report of health is the complete list; a device that it leaves out keeps its health until that is
too old, and then it is unknown.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import Object
from gpumanager.sim.clock import NS
from gpumanager.sim.manifest.pods import ContainerManifest, Pod, PodClaim

API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"
RESEND: Final = 30 * NS
"""How long a report of health holds."""
UNKNOWN: Final = "Unknown"
HEALTH: Final = {health_pb.HEALTHY: "Healthy", health_pb.UNHEALTHY: "Unhealthy"}

DeviceKey = tuple[str, str]
"""Pool and name."""


class ClaimRefused(GpuManagerError):
    """Claims of a pod cannot be prepared, or not yet; in the kubelet's words."""


@dataclass(frozen=True, slots=True)
class ClaimKey:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ClaimState:
    """driver: whose devices it has; empty for a claim without devices. devices: as it answered.
    pods: UIDs.

    prepared: by this run of the kubelet; a checkpoint does not say so. unpreparing: since the last
    pod ended.
    """

    key: ClaimKey
    uid: str
    driver: str
    devices: tuple[pb.Device, ...] = ()
    pods: frozenset[str] = frozenset()
    prepared: bool = False
    unpreparing: bool = False

    def message(self) -> pb.Claim:
        return pb.Claim(namespace=self.key.namespace, uid=self.uid, name=self.key.name)

    def of_request(self, request: str) -> Iterator[pb.Device]:
        """Yield the devices of one request, of all for an empty name.

        The request's name has to be the driver's own, letter by letter: a driver that answers
        `gpu/small` for an alternative of `gpu` has prepared it for nobody.
        """
        for one in self.devices:
            if not request or not one.request_names or request in one.request_names:
                yield one


def allocated_claim(pod: Pod, row: PodClaim, claim: Object) -> ClaimState:
    """Return what a pod may have prepared; raises ClaimRefused."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    name, uid = metadata["name"], metadata["uid"]
    owners = metadata.get("ownerReferences") or ()
    if row.template and not any(o.get("controller") and o["uid"] == pod.uid for o in owners):
        raise ClaimRefused(
            f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.full_name} "
            "(Pod is not owner)"
        )
    if pod.uid not in {one["uid"] for one in status.get("reservedFor") or ()}:
        who = f"pod {pod.name} ({pod.uid})"
        raise ClaimRefused(f"{who} is not allowed to use ResourceClaim {name} ({uid})")
    if not status.get("allocation"):
        raise ClaimRefused(f"ResourceClaim {name}: not allocated")
    results = (status["allocation"].get("devices") or {}).get("results") or ()
    drivers = {result["driver"] for result in results}
    if len(drivers) > 1:
        raise ClaimRefused(f"ResourceClaim {name}: devices of several drivers are not simulated")
    return ClaimState(ClaimKey(pod.namespace, name), uid, next(iter(drivers), ""))


@dataclass(frozen=True, slots=True)
class ClaimBooks:
    """All claims that are prepared, are to be, or still have to be unprepared."""

    rows: Mapping[ClaimKey, ClaimState] = field(default_factory=dict)

    def put(self, claim: ClaimState) -> "ClaimBooks":
        return ClaimBooks({**self.rows, claim.key: claim})

    def without(self, keys: Iterable[ClaimKey]) -> "ClaimBooks":
        gone = set(keys)
        return ClaimBooks({key: row for key, row in self.rows.items() if key not in gone})

    def attach(self, claim: ClaimState, pod: str, *, waits: bool) -> "ClaimBooks":
        """Add a pod to a claim; raises ClaimRefused. waits: not while it is unprepared."""
        row = self.rows.get(claim.key, claim)
        if row.uid != claim.uid:
            # The pod before was deleted by force and its claim freed and made anew, while the
            # driver was away. Example: a StatefulSet's pod with a claim by name.
            raise ClaimRefused(
                f"old ResourceClaim with same name {claim.key.name} and different UID {row.uid} "
                "still exists (previous pod force-deleted?!)"
            )
        if waits and row.unpreparing:
            raise ClaimRefused(f"ResourceClaim {claim.key.name} is being unprepared")
        return self.put(replace(row, pods=row.pods | {pod}))

    def detach(
        self, key: ClaimKey, pod: str, *, only_own: bool
    ) -> "tuple[ClaimBooks, ClaimState | None]":
        """Remove a pod that ended; return the claim too where it was the last: to be unprepared.

        only_own: a pod that was never attached changes nothing; else it takes the claim of the one
        pod that has it.
        """
        row = self.rows.get(key)
        if row is None or (only_own and pod not in row.pods):
            return self, None
        if len(row.pods) > 1:
            return self.put(replace(row, pods=row.pods - {pod})), None
        last = replace(row, unpreparing=True)
        return self.put(last), last

    def of_pod(self, pod: str) -> tuple[ClaimKey, ...]:
        return tuple(key for key, row in self.rows.items() if pod in row.pods)

    def pods_with(self, driver: str, devices: frozenset[DeviceKey]) -> frozenset[str]:
        """Return UIDs of pods that have one of the devices."""
        found = (
            row.pods
            for row in self.rows.values()
            if row.driver == driver
            and any((one.pool_name, one.device_name) in devices for one in row.devices)
        )
        return frozenset().union(*found)

    def get(self, key: ClaimKey) -> ClaimState:
        """Raises ClaimRefused."""
        if key not in self.rows:
            raise ClaimRefused(
                f"internal error: unable to get claim info for ResourceClaim {key.name} "
                f"in namespace {key.namespace}"
            )
        return self.rows[key]

    def cdi_ids(self, pod: Pod, container: ContainerManifest) -> tuple[str, ...]:
        """Return the CDI IDs of a container; raises ClaimRefused."""
        keys = claim_keys(pod)
        return tuple(
            one
            for row in container.claims
            for device in self.get(keys[row.claim]).of_request(row.request)
            for one in device.cdi_device_ids
        )


def claim_keys(pod: Pod) -> dict[str, ClaimKey]:
    """Return the pod's claims by its own names for them."""
    return {row.name: ClaimKey(pod.namespace, row.claim) for row in pod.claims}


def checkpoint_text(books: ClaimBooks) -> str:
    """Return `dra_manager_state`: JSON in JSON, and its CRC."""
    rows = []
    for row in books.rows.values():
        devices = [
            {
                "PoolName": one.pool_name,
                "DeviceName": one.device_name,
                "ShareID": one.share_id or None,
                "RequestNames": [*one.request_names],
                "CDIDeviceIDs": [*one.cdi_device_ids],
            }
            for one in row.devices
        ]
        claim = {
            "ClaimUID": row.uid,
            "ClaimName": row.key.name,
            "Namespace": row.key.namespace,
            "PodUIDs": {uid: {} for uid in sorted(row.pods)},
            "DriverState": {row.driver: {"Devices": devices}},
        }
        rows.append(claim)
    content = {"kind": "DRACheckpoint", "apiVersion": API_VERSION, "ClaimInfoStateList": rows}
    data = json.dumps(content)
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())})


def read_checkpoint_text(text: str) -> ClaimBooks:
    """Read it; raises ValueError where the checksum is wrong: such a kubelet does not start."""
    outer = json.loads(text)
    if zlib.crc32(outer["Data"].encode()) != outer["Checksum"]:
        raise ValueError("checkpoint is corrupted")
    books = ClaimBooks()
    for row in json.loads(outer["Data"])["ClaimInfoStateList"]:
        key, pods = ClaimKey(row["Namespace"], row["ClaimName"]), frozenset(row["PodUIDs"])
        ((driver, state),) = row["DriverState"].items()
        devices = tuple(
            pb.Device(
                pool_name=one["PoolName"],
                device_name=one["DeviceName"],
                share_id=one["ShareID"],
                request_names=one["RequestNames"],
                cdi_device_ids=one["CDIDeviceIDs"],
            )
            for one in state["Devices"]
        )
        books = books.put(ClaimState(key, row["ClaimUID"], driver, devices, pods))
    return books


@dataclass(frozen=True, slots=True)
class ReportedHealth:
    """until: so long it holds, in nanoseconds of its clock."""

    health: str = UNKNOWN
    message: str = ""
    until: int = 0


@dataclass(frozen=True, slots=True)
class HealthBooks:
    """By driver and device."""

    drivers: Mapping[str, Mapping[DeviceKey, ReportedHealth]] = field(default_factory=dict)

    def get(self, driver: str, device: DeviceKey, now: int) -> ReportedHealth:
        found = self.drivers.get(driver, {}).get(device, ReportedHealth())
        return found if now <= found.until else ReportedHealth()

    def update(
        self, driver: str, report: Iterable[health_pb.DeviceHealth], now: int
    ) -> "tuple[HealthBooks, frozenset[DeviceKey]]":
        """Return the new books, and the devices whose health has changed."""
        before = self.drivers.get(driver, {})
        reported = dict[DeviceKey, ReportedHealth]()
        for one in report:
            row = ReportedHealth(HEALTH.get(one.health, UNKNOWN), one.message, now + RESEND)
            reported[one.device.pool_name, one.device.device_name] = row
        kept = {key: row for key, row in before.items() if now <= row.until}
        changed = {
            key
            for key, row in reported.items()
            if key not in before or replace(row, until=before[key].until) != before[key]
        }
        changed |= {
            key
            for key in before.keys() - reported.keys() - kept.keys()
            if before[key].health != UNKNOWN
        }
        books = HealthBooks({**self.drivers, driver: {**kept, **reported}})
        return books, frozenset(changed)

    def clear(self, driver: str) -> "HealthBooks":
        """Forget a driver: its stream has ended, whichever instance's it was."""
        return HealthBooks({name: row for name, row in self.drivers.items() if name != driver})
