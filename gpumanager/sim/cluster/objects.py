"""The objects of a simulated cluster, their versions, and what changed since which.

Each change has a number, which is the version of the object and of the whole. Changes are
remembered for watches until they are forgotten, as a real server's compaction does.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from gpumanager.kube.claims import ENDED
from gpumanager.kube.errors import Object

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_ROWS: Final = dict.fromkeys(("containers", "initContainers", "containerStatuses"), "name")
PATCH_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    MERGE: {},
    STRATEGIC: {"conditions": "type", **_ROWS},
}
"""Lists that a patch merges by rows, and their key; it replaces others."""
TYPES: Final = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "events": ("v1", "Event"),
    "configmaps": ("v1", "ConfigMap"),
    "secrets": ("v1", "Secret"),
    "resourcequotas": ("v1", "ResourceQuota"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "mutatingwebhookconfigurations": (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
    ),
    "validatingwebhookconfigurations": (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
    ),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "resourceclaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "resourceclaimtemplates": ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    "resourceslices": ("resource.k8s.io/v1", "ResourceSlice"),
    "deviceclasses": ("resource.k8s.io/v1", "DeviceClass"),
}
"""apiVersion and kind, by resource."""


class StatusError(Exception):
    """What the server refuses, as in a Status object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    def as_object(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.status,
        }


@dataclass(frozen=True, slots=True)
class Key:
    """namespace: empty for nodes."""

    resource: str
    namespace: str
    name: str


def key_of(resource: str, item: Object) -> Key:
    metadata = item["metadata"]
    return Key(resource, metadata.get("namespace", ""), metadata["name"])


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
        version, kind = TYPES[key.resource]
        return self._put(key, {**item, "apiVersion": version, "kind": kind, "metadata": metadata})

    def patch(self, key: Key, patch: Any, kind: str = MERGE, *, status: bool = False) -> Object:
        """status: the part that is written; the other part stays as it is. An object that was
        deleted is removed with the last of its finalizers."""
        before = self.get(key)
        if kind not in PATCH_KEYS:
            raise StatusError(415, "UnsupportedMediaType", f"{kind} is not understood")
        after = _merge(before, patch, PATCH_KEYS[kind])
        if after["metadata"].get("uid") != before["metadata"]["uid"]:
            raise StatusError(422, "Invalid", f"{key.name}: metadata.uid: field is immutable")
        self._agree(key, before, after["metadata"])
        other, same = (before, after) if status else (after, before)
        whole = {**other, "status": same.get("status", {})}
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
        running = (before.get("status") or {}).get("phase") not in ENDED
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


def _merge(target: Any, patch: Any, keys: Mapping[str, str], field: str = "") -> Any:
    """Merge by RFC 7386, but for lists in fields that have a key: these by rows."""
    if isinstance(patch, Sequence) and field in keys:
        rows = {row[keys[field]]: row for row in target or []}
        for row in patch:
            rows[row[keys[field]]] = _merge(rows.get(row[keys[field]]), row, keys)
        return list(rows.values())
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value, keys, key)
    return result
