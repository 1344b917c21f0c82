"""How many GPUs of which model a namespace may use, and in which pools. Pure.

The format is gpu-admission's, which documents it in its README and no longer implements it: a
ConfigMap `kube-system/gpuquota`, whose key `gpu_quota` is

    {"research": {"quota": {"M40": 8, "A100": 2}, "pool": ["public"]}}

A namespace that is not listed has no limit. A listed one may use only its models, each up to its
number of GPUs (shares count by their cores, 100 for a GPU), and only on nodes of its pools; without
pools, on any node. New here: without `quota`, only the pools limit it (decision 0046).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.names import LABEL_MODEL, LABEL_PRODUCT, LABEL_QUOTA_MODEL, LABEL_QUOTA_POOL
from gpumanager.units import CORES_PER_GPU

CONFIG_MAP_KEY: Final = "gpu_quota"
MODEL_LABELS: Final = (LABEL_QUOTA_MODEL, LABEL_MODEL, LABEL_PRODUCT)
"""All names that a node's GPUs go by; a quota for any of them counts."""
LARGEST_QUOTA: Final = 10**9
SHOWN: Final = 5
"""Models or pools that a refusal names."""


class QuotaUnreadable(GpuManagerError):
    """The quota cannot be understood: where it stands, and what is wrong with it."""

    def __init__(self, source: str, cause: str) -> None:
        super().__init__(f"{source}: {cause}")


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """gpus: how many of each model; None: no limit. pools: empty for any."""

    gpus: Mapping[str, int] | None = None
    pools: frozenset[str] = frozenset()


Quotas = Mapping[str, NamespaceQuota]
"""By namespace."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """What quotas know of a node. models: the names its GPUs go by."""

    models: frozenset[str] = frozenset()
    pool: str = ""

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> "NodeClass":
        models = (labels.get(name, "") for name in MODEL_LABELS)
        return cls(frozenset(filter(None, models)), labels.get(LABEL_QUOTA_POOL, ""))


class NodeClasses:
    """Which nodes are of which class. A node that changes costs constant time."""

    def __init__(self) -> None:
        self.members: dict[NodeClass, set[str]] = {}

    def move(self, name: str, before: NodeClass | None, after: NodeClass | None) -> None:
        """None: it was not there, or is not any more."""
        if before == after:
            return
        if before is not None:
            self.members[before].discard(name)
            if not self.members[before]:
                del self.members[before]
        if after is not None:
            self.members.setdefault(after, set()).add(name)


def why_never_fits(quotas: Quotas, namespace: str, cores: int) -> str:
    """Return why a pod that asks for `cores` exceeds its quota even where no other pod uses any.

    Empty where it may come to fit.
    """
    quota = quotas.get(namespace)
    if quota is None or quota.gpus is None or not cores:
        return ""
    if cores <= max(quota.gpus.values(), default=0) * CORES_PER_GPU:
        return ""
    limits = ", ".join(f"{model}={count}" for model, count in sorted(quota.gpus.items())[:SHOWN])
    return (
        f"the GPU quota of namespace {namespace} is {limits or 'no GPU'}, and this pod asks for "
        f"{cores / CORES_PER_GPU:.12g}: it will not be scheduled"
    )


def read_config_map(item: Any) -> Quotas:
    """Read the ConfigMap as the API server has it; no quotas where its key is missing or empty.

    Raises QuotaUnreadable.
    """
    metadata, text = item["metadata"], (item.get("data") or {}).get(CONFIG_MAP_KEY, "")
    source = f"ConfigMap {metadata.get('namespace')}/{metadata['name']}, key {CONFIG_MAP_KEY}"
    return read_quotas(text, source) if text.strip() else {}


def read_quotas(text: str, source: str = CONFIG_MAP_KEY) -> Quotas:
    """Read JSON; raises QuotaUnreadable, naming the line or the field."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise QuotaUnreadable(source, "nested too deeply") from None
    except json.JSONDecodeError as error:
        cause = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise QuotaUnreadable(source, cause) from None
    except ValueError as error:  # a number of thousands of digits
        raise QuotaUnreadable(source, str(error)) from None
    rows = _mapping(content, source, "the whole")
    return {name: _read_quota(row, source, name) for name, row in rows.items()}


def _read_quota(row: Any, source: str, name: str) -> NamespaceQuota:
    fields = _mapping(row, source, name)
    if strange := sorted(fields.keys() - {"quota", "pool"}):
        raise QuotaUnreadable(source, f"{name}: {strange[0]!r} is not known; write quota or pool")
    pools = fields.get("pool")
    if pools is not None and not (
        isinstance(pools, list) and all(isinstance(one, str) and one for one in pools)
    ):
        raise QuotaUnreadable(source, f'{name}.pool: write a list of names, ["public"]')
    gpus = fields.get("quota")
    if gpus is not None:
        for model, count in _mapping(gpus, source, f"{name}.quota").items():
            number = isinstance(count, int) and not isinstance(count, bool)
            if not number or not 0 <= count <= LARGEST_QUOTA:
                cause = f"{name}.quota.{model}: {count!r} is not a number of GPUs"
                raise QuotaUnreadable(source, cause)
    return NamespaceQuota(gpus, frozenset(pools or ()))


def _mapping(value: Any, source: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise QuotaUnreadable(source, f"{where} is {type(value).__name__}; write an object {{…}}")
    return value
