"""What the node says of its GPUs: labels for selectors, one annotation for schedulers. Pure.

Labels say one thing of all GPUs of the node, so a node of several products says `mixed`, and as
memory that of its smallest. The annotation has each GPU, and how they are connected.
"""

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.names import (
    ANNOTATION_INVENTORY,
    LABEL_COUNT,
    LABEL_CUDA,
    LABEL_DRIVER,
    LABEL_MEMORY,
    LABEL_MODEL,
    LABEL_PRODUCT,
)
from gpumanager.units import MIB, Bytes

log = logging.getLogger(__name__)

VERSION: Final = 1
MIXED: Final = "mixed"
LONGEST: Final = 63
LONGEST_PREFIX: Final = 253
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?",
    re.ASCII,
)
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-\w.]*[A-Za-z0-9])?)?", re.ASCII)
_MODEL_WORDS: Final = 3
MOST_GPUS: Final = 64
"""Of a node. What is more, or larger than the following, is no machine's."""
MOST_BYTES: Final = 1 << 50
MOST_NUMBER: Final = 1 << 20
"""Of minors and NUMA nodes."""
MOST_LINKS: Final = 1024


@dataclass(frozen=True, slots=True)
class Software:
    """Versions, as the driver has them: `555.58.02`, `12.5`; empty where not known."""

    driver: str = ""
    cuda: str = ""


def node_labels(
    gpus: tuple[Gpu, ...], software: Software, asked: Mapping[str, str]
) -> dict[str, str]:
    """All labels of the node. asked: what --node-labels says."""
    labels = {LABEL_COUNT: str(len(gpus)), **asked}
    if gpus:
        products = {label_value(gpu.model) for gpu in gpus}
        labels[LABEL_PRODUCT] = products.pop() if len(products) == 1 else MIXED
        labels[LABEL_MEMORY] = str(min(gpu.memory for gpu in gpus) // MIB)
        if LABEL_MODEL in asked:
            labels[LABEL_MODEL] = original_model(gpus[0].model)
    versions = {LABEL_DRIVER: software.driver, LABEL_CUDA: software.cuda}
    return labels | {name: label_value(text) for name, text in versions.items() if text}


def original_model(product: str) -> str:
    """The original's label: the second of three words or more, `M40` of `Tesla M40 24GB`.

    Where that word is no model (`GeForce`) or there are fewer, which it got wrong: the product.
    """
    words = product.split()
    if len(words) >= _MODEL_WORDS and any(letter.isdigit() for letter in words[1]):
        return label_value(words[1])
    return label_value(product)


def label_value(text: str) -> str:
    """`text` as a label may have it."""
    spelled = re.sub(r"[^-\w.]+", "-", text, flags=re.ASCII)[:LONGEST]
    return spelled.strip("-_.")


def parse_node_labels(text: str) -> dict[str, str]:
    """`k=v,k2=v2` of --node-labels; what is no label is left out and said, as the original does."""
    labels = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (word.strip() for word in item.partition("="))
        prefix, _, name = key.rpartition("/")
        fits = len(prefix) <= LONGEST_PREFIX and max(len(name), len(value)) <= LONGEST
        if equals and fits and _KEY.fullmatch(key) and _VALUE.fullmatch(value):
            labels[key] = value
        else:
            log.warning("--node-labels: %r is left out: write KEY=VALUE", item)
    return labels


def inventory(node: Topology, unhealthy: Collection[GpuUUID] = ()) -> dict[str, str]:
    """The node's annotation; `read_inventory` reads it."""
    content = {
        "version": VERSION,
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "bonds": [[_bond(node.bond(a, b)) for b in range(a)] for a in range(len(node.gpus))],
        "unhealthy": sorted(unhealthy),
    }
    return {ANNOTATION_INVENTORY: json.dumps(content, separators=(",", ":"))}


def read_inventory(text: str) -> tuple[Topology, frozenset[GpuUUID]]:
    """The GPUs of a node and those that are unhealthy; raises ValueError."""
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
