"""The objects of a simulated cluster, their versions, and what changed since which.

Each change has a number, which is the version of the object and of the whole. Changes are
remembered for watches until they are forgotten, as a real server's compaction does.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from gpumanager.sim.cluster.patch import patched

Object = Mapping[str, Any]
FINAL_PHASES: Final = frozenset({"Failed", "Succeeded"})
KINDS: Final = {
    "pods": "Pod",
    "nodes": "Node",
    "events": "Event",
    "leases": "Lease",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
    "certificatesigningrequests": "CertificateSigningRequest",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "resourcequotas": "ResourceQuota",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceslices": "ResourceSlice",
    "deviceclasses": "DeviceClass",
}
GROUPS: Final = {
    "leases": "coordination.k8s.io/v1",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations": "admissionregistration.k8s.io/v1",
    "certificatesigningrequests": "certificates.k8s.io/v1",
    "poddisruptionbudgets": "policy/v1",
    "resourceclaims": "resource.k8s.io/v1",
    "resourceclaimtemplates": "resource.k8s.io/v1",
    "resourceslices": "resource.k8s.io/v1",
    "deviceclasses": "resource.k8s.io/v1",
}
"""Of kinds that are not of the core."""


class StatusError(Exception):
    """What the server refuses, as in a Status object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Key:
    """namespace: empty for nodes."""

    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Change:
    """before: None for a new object; after: None for one that is gone."""

    version: int
    key: Key
    before: Object | None
    after: Object | None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_taint_times(item: Object) -> Object:
    """Return a slice, with the time of each taint that says none; each write is a beginning
    then."""
    devices = [
        {**one, "taints": [{"timeAdded": _now(), **taint} for taint in one["taints"]]}
        if one.get("taints")
        else one
        for one in item["spec"].get("devices") or ()
    ]
    return {**item, "spec": {**item["spec"], **({"devices": devices} if devices else {})}}


@dataclass(slots=True)
class Objects:
    """All objects, and the changes that are remembered."""

    version: int = 1
    forgotten: int = 0
    """Changes up to this version cannot be watched any more."""
    rows: dict[Key, Object] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def list(self, resource: str, namespace: str = "") -> Iterator[Object]:
        for key, row in self.rows.items():
            if key.resource == resource and namespace in {"", key.namespace}:
                yield row

    def get(self, key: Key) -> Object:
        if key not in self.rows:
            raise StatusError(404, "NotFound", f'{key.resource} "{key.name}" not found')
        return self.rows[key]

    def create(self, key: Key, item: Object) -> Object:
        if key in self.rows:
            raise StatusError(409, "AlreadyExists", f'{key.resource} "{key.name}" already exists')
        metadata = {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": _now(),
            **item["metadata"],
            "name": key.name,
            **({"namespace": key.namespace} if key.namespace else {}),
        }
        fixed = {"apiVersion": GROUPS.get(key.resource, "v1"), "kind": KINDS[key.resource]}
        return self._put(key, {**item, **fixed, "metadata": metadata})

    def patch(self, key: Key, kind: str, patch: Any, *, status: bool = False) -> Object:
        """status: the part that is written; the other part stays as it is."""
        before = self.get(key)
        try:
            after = patched(kind, before, patch)
        except KeyError:
            raise StatusError(415, "UnsupportedMediaType", f"{kind} is not understood") from None
        if after["metadata"].get("uid") != before["metadata"]["uid"]:
            raise StatusError(422, "Invalid", f"{key.name}: metadata.uid: field is immutable")
        return self._replace(key, before, after, status=status)

    def update(self, key: Key, item: Object, *, status: bool = False) -> Object:
        """Write as PUT does: everything as `item` has it; status: as with `patch`."""
        before, fixed = self.get(key), ("uid", "creationTimestamp", "deletionTimestamp")
        same = {name: before["metadata"][name] for name in fixed if name in before["metadata"]}
        after = {**before, **item, "metadata": {**item["metadata"], **same}}
        self._agree(key, before, item["metadata"])
        return self._replace(key, before, after, status=status)

    def _replace(self, key: Key, before: Object, after: Object, *, status: bool) -> Object:
        """Replace an object; one that was deleted is removed with the last of its finalizers."""
        self._agree(key, before, after["metadata"])
        part = {"status": after.get("status", {})} if status else {}
        whole = {**before, **part} if status else {**after, "status": before.get("status", {})}
        if whole == before:
            return before
        made = self._put(key, whole)
        ending = made["metadata"].get("deletionTimestamp") and before["metadata"].get("finalizers")
        return self.remove(key) if ending and not made["metadata"].get("finalizers") else made

    def bind(self, key: Key, binding: Any) -> Object:
        """Bind as pods/binding does: the node and the binding's annotations in one write, once."""
        before, said = self.get(key), binding.get("metadata") or {}
        self._agree(key, before, {k: said[k] for k in ("uid", "resourceVersion") if said.get(k)})
        spec, metadata = before.get("spec") or {}, before["metadata"]
        what = f'pods/binding "{key.name}"'
        if metadata.get("deletionTimestamp"):
            raise StatusError(409, "Conflict", f"{what}: pod is being deleted")
        if node := spec.get("nodeName"):
            raise StatusError(409, "Conflict", f'{what}: pod is already assigned to node "{node}"')
        bound = {**spec, "nodeName": binding["target"]["name"]}
        notes = {**(metadata.get("annotations") or {}), **(said.get("annotations") or {})}
        return self._put(
            key, {**before, "spec": bound, "metadata": {**metadata, "annotations": notes}}
        )

    def delete(self, key: Key, preconditions: Object, grace: int | None = None) -> Object:
        """Delete an object, or only mark it: one with finalizers, and a pod that still runs, unless
        without grace: its kubelet ends it."""
        before = self.get(key)
        self._agree(key, before, preconditions)
        running = (before.get("status") or {}).get("phase") not in FINAL_PHASES
        kept, is_pod = bool(before["metadata"].get("finalizers")), key.resource == "pods"
        if not (is_pod or kept):
            return self.remove(key)
        bound = bool((before.get("spec") or {}).get("nodeName"))
        waits = is_pod and running and bound and grace != 0
        marked: dict[str, Any] = {"deletionTimestamp": _now(), **before["metadata"]}
        marked |= {"deletionGracePeriodSeconds": 30 if waits else 0}
        after = self._put(key, {**before, "metadata": marked})
        return after if waits or kept else self.remove(key)

    def remove(self, key: Key) -> Object:
        """Remove an object at once, whatever it was."""
        before = self.get(key)
        self.version += 1
        del self.rows[key]
        self.changes.append(Change(self.version, key, before, None))
        return before

    def forget(self) -> None:
        """Forget all changes: a client that watches from before now has to list again."""
        self.forgotten = self.version
        self.changes.clear()

    def _put(self, key: Key, item: Object) -> Object:
        before = self.rows.get(key)
        if key.resource == "resourceslices":
            item = _with_taint_times(item)
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        self.rows[key] = {**item, "metadata": metadata}
        self.changes.append(Change(self.version, key, before, self.rows[key]))
        return self.rows[key]

    def _agree(self, key: Key, before: Object, wanted: Object) -> None:
        """Check UID and version where they are given; raises StatusError."""
        for name in ("uid", "resourceVersion"):
            has, said = before["metadata"][name], wanted.get(name, before["metadata"][name])
            if has != said:
                cause = f"precondition failed: {name} is {has}, not {said}"
                raise StatusError(409, "Conflict", f'{key.resource} "{key.name}": {cause}')
