"""The GPUs of a node as its agent publishes them for schedulers, in one annotation. Pure."""

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.names import ANNOTATION_INVENTORY
from gpumanager.units import Bytes

VERSION: Final = 1
MOST_GPUS: Final = 64
"""Of a node. What is more, or larger than the following, is no machine's."""
MOST_BYTES: Final = 1 << 50
MOST_NUMBER: Final = 1 << 20
"""Of minors and NUMA nodes."""
MOST_LINKS: Final = 1024


def cordoned_gpus(node: Topology, text: str) -> frozenset[GpuUUID]:
    """Return the GPUs that the node's annotation `tencent.com/gpu-cordon` names: UUIDs, or `*`."""
    named = {word.strip() for word in text.split(",")}
    return frozenset(gpu.uuid for gpu in node.gpus if "*" in named or gpu.uuid in named)


def inventory(node: Topology, unhealthy: Collection[GpuUUID] = ()) -> dict[str, str]:
    """Return the node's annotation; `read_inventory` reads it."""
    content = {
        "version": VERSION,
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "bonds": [[_bond(node.bond(a, b)) for b in range(a)] for a in range(len(node.gpus))],
        "unhealthy": sorted(unhealthy),
    }
    return {ANNOTATION_INVENTORY: json.dumps(content, separators=(",", ":"))}


def read_inventory(text: str) -> tuple[Topology, frozenset[GpuUUID]]:
    """Return the GPUs of a node and those that are unhealthy; raises ValueError."""
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']!r}; this reader knows {VERSION}")
        gpus = _read_gpus(content["gpus"])
        rows = [[_read_bond(word) for word in row] for row in content["bonds"]]
        if [len(row) for row in rows] != list(range(len(gpus))):
            raise ValueError("its bonds do not fit its GPUs")
        unhealthy = frozenset(_uuid(uuid) for uuid in _rows(content["unhealthy"]))
        return topology(gpus, list(_square(rows))), unhealthy
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"no inventory of GPUs ({error!r})") from error


def _gpu(gpu: Gpu) -> dict[str, Any]:
    numa = {} if gpu.numa_node is None else {"numa": gpu.numa_node}
    return {
        "uuid": gpu.uuid,
        "minor": gpu.minor,
        "bus": gpu.bus_id,
        "model": gpu.model,
        "memory": gpu.memory,
        **numa,
    }


def _read_gpus(rows: Any) -> list[Gpu]:
    if len(_rows(rows)) > MOST_GPUS:
        raise ValueError(f"no inventory: {len(rows)} GPUs; the most is {MOST_GPUS}")
    gpus = [_read_gpu(index, fields) for index, fields in enumerate(rows)]
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        raise ValueError("no inventory: two GPUs have one UUID")
    return gpus


def _read_gpu(index: int, fields: Any) -> Gpu:
    return Gpu(
        index=index,
        minor=_number(fields["minor"], "minor", MOST_NUMBER),
        uuid=_uuid(fields["uuid"]),
        bus_id=str(fields["bus"]),
        model=str(fields["model"]),
        memory=Bytes(_number(fields["memory"], "memory", MOST_BYTES)),
        numa_node=_number(fields["numa"], "numa", MOST_NUMBER) if "numa" in fields else None,
    )


def _rows(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"no inventory: {str(value)[:40]!r} is no list")  # noqa: TRY004
    return value


def _uuid(value: Any) -> GpuUUID:
    if not isinstance(value, str) or not value:
        raise ValueError(f"no inventory: {str(value)[:40]!r} is no UUID")
    return GpuUUID(value)


def _number(value: Any, name: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"no inventory: {name} is {str(value)[:40]}; it is 0 to {most}")
    return value


def _bond(bond: Bond) -> str:
    """`PIX`, or with twelve NVLinks beside it `PIX+12`."""
    return f"{bond.level.name}+{bond.nvlinks}" if bond.nvlinks else bond.level.name


def _read_bond(word: str) -> Bond:
    level, plus, links = word.partition("+")
    return Bond(Level[level], _number(int(links), "NVLinks", MOST_LINKS) if plus else 0)


def _square(rows: list[list[Bond]]) -> Iterator[list[Bond | None]]:
    size = range(len(rows))
    for a in size:
        yield [None if a == b else rows[max(a, b)][min(a, b)] for b in size]
