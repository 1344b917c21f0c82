"""What the control plane's parts decide to write, and how a simulated API server takes it."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from gpumanager.sim.cluster.objects import Key, Objects, StatusError

Object = Mapping[str, Any]
PROTECTED: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of a claim that is allocated."""


@dataclass(frozen=True, slots=True)
class ObjectWrite:
    """item: the whole object as it is to be; of what is deleted as it was seen; of a pod that is
    bound with the node in its spec. What changed since it was seen is not overwritten."""

    verb: Literal["create", "update", "update_status", "bind", "delete"]
    resource: str
    item: Object

    @property
    def key(self) -> Key:
        metadata = self.item["metadata"]
        return Key(self.resource, metadata.get("namespace", ""), metadata["name"])


def apply_writes(objects: Objects, writes: Iterable[ObjectWrite]) -> bool:
    """Make them in their order, up to the first that is in conflict with what others wrote.

    An object that is written twice carries the version of its first write. Return whether all were
    made.
    """
    versions: dict[Key, str] = {}
    for write in writes:
        item = write.item
        if version := versions.get(write.key):
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": version}}
        try:
            match write.verb:
                case "create":
                    made = objects.create(write.key, item)
                case "bind":
                    target = {"name": item["spec"]["nodeName"]}
                    same = {"uid": item["metadata"]["uid"]}
                    made = objects.bind(write.key, {"metadata": same, "target": target})
                case "delete":
                    made = objects.delete(write.key, {"uid": item["metadata"]["uid"]})
                case verb:
                    made = objects.update(write.key, item, status=verb == "update_status")
        except StatusError as refused:
            if refused.reason not in {"Conflict", "NotFound", "AlreadyExists"}:
                raise
            return False
        versions[write.key] = made["metadata"]["resourceVersion"]
    return True


def random_suffix() -> str:
    """Return the end of a generated name."""
    return secrets.token_hex(3)[:5]


def with_status(item: Object, **fields: Any) -> Object:
    """Return the object with these fields of its status; None takes one away."""
    status = {**(item.get("status") or {}), **fields}
    return {**item, "status": {name: one for name, one in status.items() if one is not None}}


def with_finalizers(item: Object, finalizers: list[str]) -> Object:
    return {**item, "metadata": {**item["metadata"], "finalizers": finalizers}}
