"""The claim controller and the scheduler beside a simulated API server.

Each change of theirs is made at once, so that nothing comes between what is read and what is
written. As kube-controller-manager does, claims are made from templates; one that no pod uses any
more is deallocated and, where it was made for a pod, deleted, also if that pod is gone.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.claims import ENDED
from gpumanager.kube.errors import Object
from gpumanager.names import CLAIM_DRIVER
from gpumanager.sim.claims.scheduler import PROTECTED, schedule
from gpumanager.sim.cluster.objects import STRATEGIC, Key, Objects, key_of
from gpumanager.sim.cluster.server import SimulatedApiServer

POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"


class ClaimControlPlane:
    def __init__(self, server: SimulatedApiServer) -> None:
        self._server = server

    async def run(self) -> None:
        """Settle after each change, until it is cancelled."""
        while True:
            version = self._server.objects.version
            await self.settle()
            if self._server.objects.version == version:
                await self._server.changed_since(version)

    async def settle(self) -> None:
        """Write what claims need; then schedule what waits, the oldest first."""
        await self._server.apply(_settle)


def is_done(pod: Object) -> bool:
    """Return whether it will not run any more: has ended, or was deleted before it had a node."""
    ended = (pod.get("status") or {}).get("phase") in ENDED
    bound = (pod.get("spec") or {}).get("nodeName")
    return ended or bool(pod["metadata"].get("deletionTimestamp") and not bound)


def _settle(objects: Objects) -> None:
    for pod in list(objects.list("pods")):
        if not (pod["metadata"].get("deletionTimestamp") or is_done(pod)):
            _make_claims(objects, pod)
    _release_claims(objects)
    devices = {
        one["spec"].get("nodeName", ""): one["spec"].get("devices") or ()
        for one in objects.list("resourceslices")
        if one["spec"]["driver"] == CLAIM_DRIVER
    }
    for pod in sorted(objects.list("pods"), key=_age):
        spec = pod.get("spec") or {}
        waits = pod["metadata"].get("deletionTimestamp") or spec.get("schedulingGates")
        if not (spec.get("nodeName") or waits or is_done(pod)):
            _schedule(objects, pod, devices)


def _age(pod: Object) -> tuple[str, int]:
    metadata = pod["metadata"]
    return metadata["creationTimestamp"], int(metadata["resourceVersion"])


def _make_claims(objects: Objects, pod: Object) -> None:
    """Make those that a pod lacks and a template describes, and say so in the pod's status."""
    metadata = pod["metadata"]
    namespace = metadata.get("namespace", "")
    known = list((pod.get("status") or {}).get("resourceClaimStatuses") or ())
    made = []
    for used in (pod.get("spec") or {}).get("resourceClaims") or ():
        source = Key("resourceclaimtemplates", namespace, used.get("resourceClaimTemplateName", ""))
        if source not in objects.rows or used["name"] in {one["name"] for one in known}:
            continue
        template = objects.rows[source]["spec"]
        given = template.get("metadata") or {}
        name = f"{metadata['name']}-{used['name']}-"[:57] + secrets.token_hex(3)[:5]
        owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
        claim = {
            "metadata": {
                **given,
                "name": name,
                "namespace": namespace,
                "ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata["uid"]}],
                "annotations": {**(given.get("annotations") or {}), POD_CLAIM: used["name"]},
            },
            "spec": template["spec"],
        }
        objects.create(key_of("resourceclaims", claim), claim)
        made.append({"name": used["name"], "resourceClaimName": name})
    if made:
        status = {"resourceClaimStatuses": [*known, *made]}
        objects.patch(key_of("pods", pod), {"status": status}, status=True)


def _release_claims(objects: Objects) -> None:
    """Release what no pod uses any more: allocation, finalizer, and a generated claim itself."""
    active = {one["metadata"]["uid"] for one in objects.list("pods") if not is_done(one)}
    for claim in list(objects.list("resourceclaims")):
        key, metadata = key_of("resourceclaims", claim), claim["metadata"]
        reserved = (claim.get("status") or {}).get("reservedFor") or []
        users = [one for one in reserved if one["uid"] in active]
        owners = {one["uid"] for one in metadata.get("ownerReferences") or ()}
        deleted = bool(metadata.get("deletionTimestamp"))
        if owners and not owners & active and not users and not deleted:
            objects.delete(key, {})
            deleted = True
        if key in objects.rows and (users != reserved or (deleted and not users)):
            status = {"reservedFor": users} if users else {"reservedFor": None, "allocation": None}
            objects.patch(key, {"status": status}, status=True)
            if not users:
                others = [one for one in metadata.get("finalizers") or () if one != PROTECTED]
                objects.patch(key, {"metadata": {"finalizers": others}})


def _schedule(objects: Objects, pod: Object, devices: Mapping[str, Sequence[Object]]) -> None:
    key = key_of("pods", pod)
    kinds = ("nodes", "resourceclaims", "deviceclasses")
    nodes, claims, classes = (list(objects.list(name)) for name in kinds)
    try:
        found = schedule(pod, nodes, claims, classes, devices)
    except GpuManagerError as error:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"conditions": [{**condition, "message": str(error)}]}
        objects.patch(key, {"status": status}, STRATEGIC, status=True)
        return
    for claim in found.claims:
        where = key_of("resourceclaims", claim)
        if where not in objects.rows:
            objects.create(where, claim)
        finalizers = {"finalizers": claim["metadata"]["finalizers"]}
        objects.patch(where, {"metadata": finalizers})
        objects.patch(where, {"status": claim["status"]}, status=True)
    objects.patch(key, {"status": found.status}, status=True)
    objects.bind(key, {"target": {"name": found.node}})
