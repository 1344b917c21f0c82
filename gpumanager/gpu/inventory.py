"""The GPUs of a node as its agent publishes them for schedulers, in one annotation. Pure."""

import json
from collections.abc import Collection
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
    bonds = [[node.bond(a, b) for b in range(a)] for a in range(len(node.gpus))]
    content = {
        "version": VERSION,
        "gpus": [
            {
                "uuid": gpu.uuid,
                "minor": gpu.minor,
                "bus": gpu.bus_id,
                "model": gpu.model,
                "memory": gpu.memory,
                **({} if gpu.numa_node is None else {"numa": gpu.numa_node}),
            }
            for gpu in node.gpus
        ],
        "bonds": [  # `PIX`, or with twelve NVLinks beside it `PIX+12`
            [f"{one.level.name}+{one.nvlinks}" if one.nvlinks else one.level.name for one in row]
            for row in bonds
        ],
        "unhealthy": sorted(unhealthy),
    }
    return {ANNOTATION_INVENTORY: json.dumps(content, separators=(",", ":"))}


def read_inventory(text: str) -> tuple[Topology, frozenset[GpuUUID]]:
    """Return the GPUs of a node and those that are unhealthy; raises ValueError."""
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']!r}; this reader knows {VERSION}")
        rows = _rows(content["gpus"])
        if len(rows) > MOST_GPUS:
            raise ValueError(f"no inventory: {len(rows)} GPUs; the most is {MOST_GPUS}")
        gpus = [
            Gpu(
                index=index,
                minor=_number(row["minor"], "minor", MOST_NUMBER),
                uuid=_uuid(row["uuid"]),
                bus_id=str(row["bus"]),
                model=str(row["model"]),
                memory=Bytes(_number(row["memory"], "memory", MOST_BYTES)),
                numa_node=_number(row["numa"], "numa", MOST_NUMBER) if "numa" in row else None,
            )
            for index, row in enumerate(rows)
        ]
        if len({gpu.uuid for gpu in gpus}) < len(gpus):
            raise ValueError("no inventory: two GPUs have one UUID")
        if [len(words) for words in content["bonds"]] != list(range(len(gpus))):
            raise ValueError("its bonds do not fit its GPUs")
        bonds: list[list[Bond | None]] = [[None] * len(gpus) for _ in gpus]
        for a, words in enumerate(content["bonds"]):
            for b, word in enumerate(words):
                level, plus, links = word.partition("+")
                nvlinks = _number(int(links), "NVLinks", MOST_LINKS) if plus else 0
                bonds[a][b] = bonds[b][a] = Bond(Level[level], nvlinks)
        return topology(gpus, bonds), frozenset(map(_uuid, _rows(content["unhealthy"])))
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"no inventory of GPUs ({error!r})") from error


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
