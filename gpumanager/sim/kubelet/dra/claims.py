"""The DRA manager's values: claims, for whom and with which devices; and its checkpoint. Pure.

Follows claiminfo.go, state/ and the decisions of manager.go in pkg/kubelet/cm/dra.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.errors import GpuManagerError
from gpumanager.kube.claims import is_allocated, list_results
from gpumanager.kube.errors import Object
from gpumanager.sim.manifest.pods import Pod, PodClaim

API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"


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
    metadata = claim["metadata"]
    name, uid = metadata["name"], metadata["uid"]
    owners = metadata.get("ownerReferences") or ()
    if row.template and not any(o.get("controller") and o["uid"] == pod.uid for o in owners):
        raise ClaimRefused(
            f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.full_name} "
            "(Pod is not owner)"
        )
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    if pod.uid not in {one["uid"] for one in reserved}:
        who = f"pod {pod.name} ({pod.uid})"
        raise ClaimRefused(f"{who} is not allowed to use ResourceClaim {name} ({uid})")
    if not is_allocated(claim):
        raise ClaimRefused(f"ResourceClaim {name}: not allocated")
    drivers = {result["driver"] for result in list_results(claim)}
    if len(drivers) > 1:
        raise ClaimRefused(f"ResourceClaim {name}: devices of several drivers are not simulated")
    return ClaimState(ClaimKey(pod.namespace, name), uid, next(iter(drivers), ""))


def claim_keys(pod: Pod) -> dict[str, ClaimKey]:
    """Return the pod's claims by its own names for them."""
    return {row.name: ClaimKey(pod.namespace, row.claim) for row in pod.claims}


def checkpoint_text(claims: Iterable[ClaimState]) -> str:
    """Return `dra_manager_state`: JSON in JSON, and its CRC."""
    rows = []
    for row in claims:
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


def read_checkpoint_text(text: str) -> Iterator[ClaimState]:
    """Read it; raises ValueError where the checksum is wrong: such a kubelet does not start."""
    outer = json.loads(text)
    if zlib.crc32(outer["Data"].encode()) != outer["Checksum"]:
        raise ValueError("checkpoint is corrupted")
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
        yield ClaimState(key, row["ClaimUID"], driver, devices, pods)
