"""Reads the pod and node lists of the public GPU-sharing trace of 2023, as published.

    pods   name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,…
    nodes  sn,cpu_milli,memory_mib,gpu,model

Columns are found by their names; others are passed over. `gpu_milli` is of each GPU, and less than
1000 only where one GPU is asked. `gpu_spec` is `A|B`: models that will do; empty for any.
"""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from gpumanager.errors import InputError
from gpumanager.placement.values import FreeNode, PodRequest, Request, idle_gpu
from gpumanager.sim.trace.workload import MILLI_PER_GPU, TracePod
from gpumanager.units import CORES_PER_GPU

Row = Mapping[str, str]
Made = TypeVar("Made")

LARGEST_NUMBER: Final = 2**53
"""No number of a trace is larger."""

MOST_GPUS: Final = 64

POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


def read_pods(path: Path) -> tuple[TracePod, ...]:
    """Read pods; raises InputError with file and line."""
    return _read(path, POD_COLUMNS, _pod)


def read_nodes(path: Path) -> tuple[FreeNode, ...]:
    """Read nodes; raises InputError with file and line."""
    return _read(path, NODE_COLUMNS, _node)


def idle_node(
    name: str, model: str, gpus: int, *, cpu_milli: int, memory_mib: int, blocks: int = 0
) -> FreeNode:
    """Return a node on which nothing runs. blocks: memory of each GPU; 0 where nobody asks for
    any."""
    free = (idle_gpu(blocks),) * gpus
    return FreeNode(name, model, free, cpu_milli, memory_mib, cpu_milli, memory_mib)


def requests_for(gpus: int, milli: int) -> tuple[Request, ...]:
    """Return what one container asks for. milli: of each GPU, rounded up to whole cores."""
    if not gpus:
        return ()
    if milli == MILLI_PER_GPU:
        return (Request(gpus * CORES_PER_GPU),)
    return (Request(-(-milli * CORES_PER_GPU // MILLI_PER_GPU)),)


def _read(path: Path, columns: tuple[str, ...], make: Callable[[Row], Made]) -> tuple[Made, ...]:
    made = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise InputError(path, f"no column {', '.join(missing)} in its header", line=1)
            for row in reader:
                cells = {key: value or "" for key, value in row.items() if key is not None}
                try:
                    made.append(make(cells))
                except ValueError as error:
                    raise InputError(path, str(error), line=reader.line_num) from error
    except csv.Error as error:
        raise InputError(path, f"not a CSV file: {error}", line=reader.reader.line_num) from error
    except OSError as error:
        raise InputError(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise InputError(path, "not a text file in UTF-8") from error
    if not made:
        raise InputError(path, "has no rows below its header")
    return tuple(made)


def _pod(row: Row) -> TracePod:
    gpus = _number(row, "num_gpu", MOST_GPUS)
    milli = _number(row, "gpu_milli", MILLI_PER_GPU) if gpus else 0
    if gpus and not milli:
        raise ValueError("gpu_milli is 0: a GPU is asked for, so write 1 to 1000")
    if gpus > 1 and milli != MILLI_PER_GPU:
        raise ValueError(f"gpu_milli is {milli}: of several GPUs each is whole, so write 1000")
    models = frozenset(filter(None, (word.strip() for word in row.get("gpu_spec", "").split("|"))))
    ask = PodRequest(
        requests_for(gpus, milli), _number(row, "cpu_milli"), _number(row, "memory_mib"), models
    )
    return TracePod(row["name"], ask, gpus * milli)


def _node(row: Row) -> FreeNode:
    return idle_node(
        row["sn"],
        row["model"].strip(),
        _number(row, "gpu", MOST_GPUS),
        cpu_milli=_number(row, "cpu_milli"),
        memory_mib=_number(row, "memory_mib"),
    )


def _number(row: Row, name: str, most: int = LARGEST_NUMBER) -> int:
    text = row[name].strip()
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_NUMBER))
    if not digits or int(text) > most:
        raise ValueError(f"{name} is {text[:30]!r}: write a whole number from 0 to {most}")
    return int(text)
