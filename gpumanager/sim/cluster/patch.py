"""The two kinds of patch that we send, as the API server applies them. Pure.

A merge patch replaces lists; a strategic one merges those that have a key, of which a node's
conditions (by type) and a pod's containers (by name) are known here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
KEYS: Final = {"conditions": "type", "containers": "name", "initContainers": "name"}


def patched(kind: str, target: Any, patch: Any) -> Any:
    """`target` after `patch`; neither is changed. kind: a content type; raises KeyError."""
    return {MERGE: merge, STRATEGIC: strategic}[kind](target, patch)


def merge(target: Any, patch: Any) -> Any:
    """Merge by RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any, field: str = "") -> Any:
    """Merge as Kubernetes merges its own kinds; without directives."""
    if isinstance(patch, Sequence) and not isinstance(patch, str) and field in KEYS:
        rows = {row[KEYS[field]]: row for row in target or []}
        for row in patch:
            rows[row[KEYS[field]]] = strategic(rows.get(row[KEYS[field]]), row)
        return list(rows.values())
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, key)
    return result
