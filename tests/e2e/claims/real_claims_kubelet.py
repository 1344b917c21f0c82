"""A real kubelet for the contract about claims that simulated ones keep (`tests/contracts/dra`).

The cases allocate claims themselves, so no scheduler sees their pods, and the controllers of claims
are away meanwhile: they would reserve a claim for every pod that names it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gpumanager.sim.kubelet.versions import KubeletVersion
from tests.contracts.dra.claims_kubelet import (
    DRIVER,
    AllocatedClaim,
    ClaimingContainer,
    ClaimingPod,
)
from tests.e2e.claims.real_claims import CLAIMS, SLICES
from tests.e2e.cluster.api_client import ApiClient, silent
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_kubelet import FAILS_AT_FIRST, STATE, RealKubelet
from tests.e2e.node.real_node import NODE
from tests.e2e.node.real_pods import EVENTS, GRACE_SECONDS, LOGS, PODS, prepared

STRATEGIC: Final = "strategic-merge-patch+json"
NOBODY: Final = "nobody"
"""No scheduler has this name."""
END: Final = "end of the environment"
PRINTS: Final = f"env; echo {END}; exec sleep 100000"


class RealClaimsKubelet:
    """The kubelet of a node whose API server is `api`."""

    seconds = 300.0
    root = Path("/var/lib/kubelet")
    cdi = Path("/var/run/cdi")

    def __init__(self, kubelet: RealKubelet, api: ApiClient) -> None:
        self._kubelet = kubelet
        self._api = api
        self._names: dict[str, str] = {}
        self._published: list[str] = []

    @property
    def version(self) -> KubeletVersion:
        return self._kubelet.version

    def now(self) -> float:
        return time.monotonic()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def hurry(self, seconds: float) -> None:
        """It goes on by itself."""

    async def allocate(self, claim: AllocatedClaim) -> str:
        return await asyncio.to_thread(self._allocate, claim)

    async def free(self, name: str) -> None:
        await asyncio.to_thread(self._api.delete, f"{CLAIMS}/{name}", 0)

    async def start(self, pod: ClaimingPod) -> str:
        return await asyncio.to_thread(self._start, pod)

    async def starts(self, uid: str, container: str) -> int:
        status = await self._status(uid, container)
        waits = not status or not status["state"].keys() - {"waiting"}
        return int(status.get("restartCount", 0)) + (0 if waits else 1)

    async def environment(self, uid: str, container: str) -> Mapping[str, str]:
        folder = LOGS / f"default_{self._names[uid]}_{uid}" / container
        said = await asyncio.to_thread(wait_for, lambda: _environment(folder), "it is printed")
        lines = (line.split(" ", 3)[3] for line in said.splitlines())
        return dict(line.split("=", 1) for line in lines if "=" in line)

    async def delete(self, uid: str, *, force: bool = False) -> None:
        path = f"{PODS}/{self._names[uid]}"
        await asyncio.to_thread(self._api.delete, path, 0 if force else GRACE_SECONDS)

    async def gone(self, uid: str) -> bool:
        metadata: Mapping[str, Any] = (await self._pod(uid))["metadata"]
        return bool(metadata.get("uid") != uid)

    async def warnings(self, uid: str) -> Sequence[tuple[str, str]]:
        selected = f"{EVENTS}?fieldSelector=involvedObject.uid={uid},type=Warning"
        events = (await asyncio.to_thread(self._api.get, selected))["items"]
        return [(one["reason"], one["message"]) for one in events]

    async def health(self, uid: str, container: str) -> Sequence[Mapping[str, Any]]:
        found = (await self._status(uid, container)).get("allocatedResourcesStatus", ())
        return [*found]

    async def publish(self, name: str, driver: str = DRIVER) -> None:
        pool = {"name": f"{NODE}-{name}", "generation": 1, "resourceSliceCount": 1}
        spec = {"nodeName": NODE, "driver": driver, "pool": pool, "devices": []}
        self._published.append(name)
        await asyncio.to_thread(
            self._api.create, SLICES, {"metadata": {"name": name}, "spec": spec}
        )

    async def slices(self) -> set[str]:
        """Of the tests: an agent may have its own."""
        found = (await asyncio.to_thread(self._api.get, SLICES))["items"]
        return {one["metadata"]["name"] for one in found} & {*self._published}

    async def restart(self) -> None:
        await self._kubelet.restart()

    async def close(self) -> None:
        for name in self._published:
            await asyncio.to_thread(self._api.delete, f"{SLICES}/{name}", 0)

    def _allocate(self, claim: AllocatedClaim) -> str:
        requests = [
            {"name": name, "exactly": {"deviceClassName": claim.driver}} for name in claim.requests
        ]
        described = {"metadata": {"name": claim.name}, "spec": {"devices": {"requests": requests}}}
        uid = str(self._api.create(CLAIMS, described)["metadata"]["uid"])
        results = [
            {"request": request, "driver": claim.driver, "pool": "pool", "device": f"thing-{n}"}
            for n, request in enumerate(claim.requests)
        ]
        self._write_status(claim.name, {"allocation": {"devices": {"results": results}}})
        return uid

    def _start(self, pod: ClaimingPod) -> str:
        uid = str(self._api.create(PODS, described(pod))["metadata"]["uid"])
        self._names[uid] = pod.name
        row = {"resource": "pods", "name": pod.name, "uid": uid}
        reserved = pod.claims.values() if pod.reserved is None else pod.reserved
        for claim in reserved:
            self._write_status(claim, {"reservedFor": [row]})
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"metadata": {"name": pod.name}, "target": target}
        self._api.create(f"{PODS}/{pod.name}/binding", binding)
        return uid

    def _write_status(self, claim: str, status: Mapping[str, Any]) -> None:
        self._api.ask("PATCH", f"{CLAIMS}/{claim}/status", {"status": status}, STRATEGIC)

    async def _pod(self, uid: str) -> dict[str, Any]:
        path = f"{PODS}/{self._names[uid]}"
        nothing: dict[str, Any] = {"metadata": {}, "status": {}}
        return await asyncio.to_thread(silent, lambda: self._api.get(path)) or nothing

    async def _status(self, uid: str, container: str) -> dict[str, Any]:
        statuses = (await self._pod(uid))["status"].get("containerStatuses", ())
        return next((dict(one) for one in statuses if one["name"] == container), {})


def described(pod: ClaimingPod) -> dict[str, Any]:
    """The pod as the API server takes it, for nobody to schedule."""
    rows = [{"name": row, "resourceClaimName": claim} for row, claim in pod.claims.items()]
    spec = {
        "schedulerName": NOBODY,
        "restartPolicy": "OnFailure",
        "volumes": [{"name": "state", "emptyDir": {}}],
        "resourceClaims": rows,
        "containers": [_container(one) for one in pod.containers],
    }
    metadata = {"name": pod.name}
    return prepared({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _container(one: ClaimingContainer) -> dict[str, Any]:
    script = FAILS_AT_FIRST.format(state=STATE, name=one.name, starts=one.starts, then=PRINTS)
    uses = [{"name": row} | ({"request": name} if name else {}) for row, name in one.uses]
    return {
        "name": one.name,
        "image": "local",
        "command": ["sh", "-c", script],
        "env": [{"name": name, "value": value} for name, value in one.env.items()],
        "resources": {"claims": uses},
        "volumeMounts": [{"name": "state", "mountPath": STATE}],
    }


def _environment(folder: Path) -> str:
    """What the last start of a container printed, once that is all; empty before."""
    logs = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
    said = logs[-1].read_text(errors="replace") if logs else ""
    return said if END in said else ""
