"""The DRA manager as values: which claims are prepared, for whom, and with which devices. Pure.

Follows claiminfo.go, state/ and the decisions of manager.go in pkg/kubelet/cm/dra.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import Object
from gpumanager.sim.manifest.pods import EXTENDED, ContainerManifest, Pod, PodClaim

API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"


class ClaimRefused(GpuManagerError):
    """Claims of a pod cannot be prepared, or not yet; in the kubelet's words."""


@dataclass(frozen=True, slots=True)
class ClaimKey:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """As a driver answered. requests: of the claim; empty for all of them."""

    pool: str
    name: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share: str | None = None


def prepared_device(device: pb.Device) -> PreparedDevice:
    return PreparedDevice(
        device.pool_name,
        device.device_name,
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
        device.share_id if device.HasField("share_id") else None,
    )


@dataclass(frozen=True, slots=True)
class ClaimState:
    """devices: by driver; a driver without devices has a row too. pods: UIDs.

    prepared: by this run of the kubelet; a checkpoint does not say so. unpreparing: since the last
    pod ended.
    """

    key: ClaimKey
    uid: str
    devices: Mapping[str, tuple[PreparedDevice, ...]]
    pods: frozenset[str] = frozenset()
    prepared: bool = False
    unpreparing: bool = False

    def with_devices(
        self, driver: str, found: Iterable[PreparedDevice], *, replaces: bool
    ) -> "ClaimState":
        """Add devices. replaces: forget an earlier answer's; else they stay, twice perhaps."""
        before = () if replaces else self.devices[driver]
        return replace(self, devices={**self.devices, driver: (*before, *found)})

    def message(self) -> pb.Claim:
        return pb.Claim(namespace=self.key.namespace, uid=self.uid, name=self.key.name)


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
    drivers = dict.fromkeys(result["driver"] for result in results)
    key = ClaimKey(pod.namespace, name)
    return ClaimState(key, uid, dict.fromkeys(drivers, ()))


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

    def pods_with(self, driver: str, devices: frozenset[tuple[str, str]]) -> frozenset[str]:
        """UIDs of pods that have one of the devices, each by pool and name."""
        found = (
            row.pods
            for row in self.rows.values()
            if any((d.pool, d.name) in devices for d in row.devices.get(driver, ()))
        )
        return frozenset().union(*found)

    def devices(self, pod: Pod, claim: str, request: str) -> Iterator[tuple[str, PreparedDevice]]:
        """Yield the devices of one row of a container's claims; raises ClaimRefused.

        The request's name has to be the driver's own, letter by letter: a driver that answers
        `gpu/small` for an alternative of `gpu` has prepared it for nobody.
        """
        name = {row.name: row.claim for row in pod.claims}[claim]
        found = self.rows.get(ClaimKey(pod.namespace, name))
        if found is None:
            raise ClaimRefused(
                f"internal error: unable to get claim info for ResourceClaim {name} "
                f"in namespace {pod.namespace}"
            )
        for driver, devices in found.devices.items():
            for device in devices:
                if not request or not device.requests or request in device.requests:
                    yield driver, device

    def cdi_ids(self, pod: Pod, container: ContainerManifest, random: Random) -> tuple[str, ...]:
        """Return the CDI IDs of a container; claims in any order, requests in the container's."""
        names = list(dict.fromkeys(row.claim for row in container.claims))
        random.shuffle(names)
        return tuple(
            one
            for name in names
            for row in container.claims
            if row.claim == name
            for _, device in self.devices(pod, name, row.request)
            for one in device.cdi_ids
        )

    def claimed(
        self, pod: Pod, container: ContainerManifest
    ) -> Iterator[tuple[ClaimKey, tuple[tuple[str, PreparedDevice], ...]]]:
        """Yield the claims that a container uses, with all that drivers answered for them."""
        names = {row.name: ClaimKey(pod.namespace, row.claim) for row in pod.claims}
        for key in dict.fromkeys(
            names[row.claim] for row in container.claims if row.claim in names
        ):
            if row := self.rows.get(key):
                yield key, tuple((d, one) for d, devices in row.devices.items() for one in devices)

    def health_rows(
        self, pod: Pod, container: ContainerManifest
    ) -> Iterator[tuple[str, str, PreparedDevice]]:
        """Yield resource, driver and device for a container's status, by the request's base name,
        `gpu` of `gpu/small`.
        """
        names = {row.name: ClaimKey(pod.namespace, row.claim) for row in pod.claims}
        for row in container.claims:
            if row.claim == EXTENDED or names[row.claim] not in self.rows:
                continue
            name = f"claim:{row.claim}/{row.request}" if row.request else f"claim:{row.claim}"
            for driver, device in self.devices(pod, row.claim, row.request.partition("/")[0]):
                yield name, driver, device


def checkpoint_text(books: ClaimBooks) -> str:
    """Return `dra_manager_state`, to the byte: Go's JSON in JSON, and its CRC."""
    rows = [
        {
            "ClaimUID": row.uid,
            "ClaimName": row.key.name,
            "Namespace": row.key.namespace,
            "PodUIDs": {uid: {} for uid in sorted(row.pods)},
            "DriverState": {
                driver: {
                    "Devices": [
                        {
                            "PoolName": one.pool,
                            "DeviceName": one.name,
                            "ShareID": one.share,
                            "RequestNames": list(one.requests) or None,
                            "CDIDeviceIDs": list(one.cdi_ids) or None,
                        }
                        for one in row.devices[driver]
                    ]
                    or None
                }
                for driver in sorted(row.devices)
            },
        }
        for row in books.rows.values()
    ]
    content = {"kind": "DRACheckpoint", "apiVersion": API_VERSION, "ClaimInfoStateList": rows}
    data = _go_json(content)
    return _go_json({"Data": data, "Checksum": zlib.crc32(data.encode())})


def read_checkpoint_text(text: str) -> ClaimBooks:
    """Read it; raises ValueError where the checksum is wrong: such a kubelet does not start."""
    outer = json.loads(text)
    if zlib.crc32(outer["Data"].encode()) != outer["Checksum"]:
        raise ValueError("checkpoint is corrupted")
    books = ClaimBooks()
    for row in json.loads(outer["Data"])["ClaimInfoStateList"] or ():
        devices = {
            driver: tuple(
                PreparedDevice(
                    one["PoolName"],
                    one["DeviceName"],
                    tuple(one["RequestNames"] or ()),
                    tuple(one["CDIDeviceIDs"] or ()),
                    one["ShareID"],
                )
                for one in state["Devices"] or ()
            )
            for driver, state in row["DriverState"].items()
        }
        key = ClaimKey(row["Namespace"], row["ClaimName"])
        books = books.put(ClaimState(key, row["ClaimUID"], devices, frozenset(row["PodUIDs"])))
    return books


def _go_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
