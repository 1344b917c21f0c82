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
    return _merge(target, patch, {MERGE: {}, STRATEGIC: KEYS}[kind])


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
