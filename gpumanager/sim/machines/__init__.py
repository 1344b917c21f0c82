"""Machines to simulate, as data: one YAML file each, and the reader of such files.

    models:                        # in the order of the GPUs, if there are several
      - name: Tesla T4
        memory: 15360MiB
        sms: 40
        compute-capability: "7.5"
        memory-bandwidth: 320      # GB/s of its own memory; link-bandwidth: to the host, each way
    gpus: 4                        # all of the first model; or a list of model names
    topology: |2                   # what `nvidia-smi topo -m` prints on it, indented by two
              GPU0 GPU1 …
    links:                         # or, shorter: groups of GPUs, every pair of which has this bond
      SYS: [[0, 1, 2, 3]]
      PIX: [[0, 1], [2, 3]]
      NV2: [[0, 1]]
    numa: [0, 0, 1, 1]             # with links: the NUMA node of each GPU
    driver:                        # where it is less kind than an ideal one; each may be left out
      like: real                   # what holds for those that are left out; or ideal, h100
      time-slice: 1024             # us that a process has a GPU for while others want it
      switch-cost: 50              # us lost whenever another process gets the GPU
      event-floor: 3               # us that a pair of timing events shows around nothing
      event-floor-idle: 6          # us more where the stream was idle
      page: 2MiB                   # what allocations larger than slab-most take, whole
      slab-most: 1MiB
      queue-depth: 1024            # launches that can wait
      samples: one-process         # NVML's, of utilisation; every-process, none
      hides-managed: true          # NVML's figure of a process lacks managed memory
      counts-imports: true         # it contains what others made and this process opened
      local-memory: true           # stacks of resident threads take memory at launch
      hmm: true                    # kernels reach memory of malloc
      hides-memory: true           # NVML has no memory figure of a GPU

A pair in several groups has the tightest PCIe level and the NVLinks of all; a pair in none is SYS.
"""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import InputError
from gpumanager.gpu.topology_text import parse_topology
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.sim.machine import (
    BEHAVIOURS,
    DEFAULT_BEHAVIOUR,
    GpuModel,
    Machine,
    UtilizationSamples,
)
from gpumanager.sim.manifest.yaml_text import Fields, Items, Mark, documents, read_text, typed
from gpumanager.units import MEMORY_BLOCK, Bytes, parse_bytes

MOST_GPUS: Final = 16
"""As many as the simulated driver's shared state has room for."""
_CUDA_VERSIONS: Final = range(1000, 1_000_000)
"""As the driver says its own: 12050 is 12.5."""
_NUMA_NODES: Final = range(1024)
_LARGEST_GPU: Final = 1 << 40
_LARGEST_NUMBER: Final = 1 << 20
GB: Final = 10**9
_LONGEST_NAME: Final = 95
"""Bytes: what NVML's buffer for a name has room for."""
_HERE: Final = Path(__file__).resolve().parent
_NVLINKS: Final = re.compile(r"NV([1-9][0-9]?)")
_CAPABILITY: Final = re.compile(r"([0-9]{1,2})\.([0-9])")

Read = Callable[[Any, Mark], Any]


def _number(factor: int = 1, least: int = 1) -> Read:
    def read(value: Any, place: Mark) -> int:
        number = int(typed(value, "int", place))
        if not least <= number <= _LARGEST_NUMBER:
            raise place.error(f"expected a number from {least}, found {number}")
        return number * factor

    return read


def _one_of(words: Mapping[str, Any]) -> Read:
    def read(value: Any, place: Mark) -> Any:
        if (word := typed(value, "str", place)) not in words:
            raise place.error(f"expected one of {', '.join(words)}, found {word!r}")
        return words[word]

    return read


def _flag(value: Any, place: Mark) -> Any:
    return typed(value, "bool", place)


def _size(value: Any, place: Mark) -> Bytes:
    try:
        amount = parse_bytes(typed(value, "quantity", place))
    except ValueError as error:
        raise place.error(str(error)) from error
    if amount > _LARGEST_GPU:
        raise place.error("larger than any GPU")
    return amount


def _capability(value: Any, place: Mark) -> tuple[int, int]:
    text = typed(value, "quantity", place)
    if (match := _CAPABILITY.fullmatch(text)) is None:
        raise place.error(f"expected for example 8.0, found {text!r}")
    return int(match[1]), int(match[2])


def _name(value: Any, place: Mark) -> str:
    name = str(typed(value, "str", place))
    if not name.strip() or not name.isprintable() or len(name.encode()) > _LONGEST_NAME:
        raise place.error(f"expected a name of 1 to {_LONGEST_NAME} printable characters")
    return name


_MODEL: Final[Mapping[str, tuple[str, Read]]] = {
    "name": ("name", _name),
    "memory": ("memory", _size),
    "sms": ("sm_count", _number()),
    "compute-capability": ("compute_capability", _capability),
    "threads-per-sm": ("max_threads_per_sm", _number()),
    "context-memory": ("context_bytes", _size),
    "reserved-memory": ("reserved_bytes", _size),
    "link-bandwidth": ("link_bandwidth", _number(GB)),
    "memory-bandwidth": ("memory_bandwidth", _number(GB)),
}
_SAMPLES: Final = {one.name.lower().replace("_", "-"): one for one in UtilizationSamples}
_DRIVER: Final[Mapping[str, tuple[str, Read]]] = {
    "like": ("like", _one_of(BEHAVIOURS)),
    "time-slice": ("slice_ns", _number(1000, 0)),
    "switch-cost": ("switch_ns", _number(1000, 0)),
    "event-floor": ("event_floor_ns", _number(1000, 0)),
    "event-floor-idle": ("event_idle_ns", _number(1000, 0)),
    "page": ("page_bytes", _size),
    "slab-most": ("slab_most_bytes", _size),
    "queue-depth": ("queue_depth", _number()),
    "samples": ("samples", _one_of(_SAMPLES)),
    "hides-managed": ("hides_managed", _flag),
    "counts-imports": ("counts_imports", _flag),
    "local-memory": ("local_memory", _flag),
    "hmm": ("hmm", _flag),
    "hides-memory": ("hides_memory", _flag),
}
"""By field: the attribute that it sets, and how it is read."""
_FIELDS: Final = dict.fromkeys(
    ("models", "gpus", "topology", "links", "numa", "cuda-version", "driver")
)


def machine_names() -> tuple[str, ...]:
    """Return the machines that come with the project."""
    return tuple(sorted(path.stem for path in _HERE.glob("*.yaml")))


def load_machine(name: str) -> Machine:
    """Return the machine of that name, or described by that file; raises InputError."""
    if name in machine_names():
        return read_machine(_HERE / f"{name}.yaml")
    if Path(name).suffix in (".yaml", ".yml") or "/" in name or Path(name).is_file():
        return read_machine(Path(name))
    known = ", ".join(machine_names())
    raise InputError("--machine", f"no machine {name!r}: known are {known}; or name a YAML file")


def read_machine(path: Path) -> Machine:
    found = documents(read_text(path), str(path))
    if len(found) != 1:
        raise InputError(path, f"expected one description of a machine, found {len(found)}")
    (fields,) = found
    fields.check_known(_FIELDS)
    models = dict(_model(*row) for row in _rows(fields.required("models"), fields.places["models"]))
    if len(models) != len(fields["models"]) or not models:
        raise fields.error("two models of one name" if models else "names no model", "models")
    gpus, place = fields.required("gpus"), fields.places["gpus"]
    names = [next(iter(models))] * (0 if isinstance(gpus, Items) else typed(gpus, "int", place))
    if isinstance(gpus, Items):
        names = [_one_of({one: one for one in models})(*row) for row in _rows(gpus, place)]
    if not 0 < len(names) <= MOST_GPUS:
        raise place.error(f"expected 1 to {MOST_GPUS} GPUs, found {len(names)}")
    plan = _topology(fields, len(names))
    driver = _read(fields.get("driver", Fields(fields.place)), _DRIVER, fields.place)
    version = fields.get("cuda-version", 12050)
    if "cuda-version" in fields:
        version = typed(version, "int", fields.places["cuda-version"])
        if version not in _CUDA_VERSIONS:
            cause = f"expected for example 12050 for CUDA 12.5, found {version}"
            raise fields.error(cause, "cuda-version")
    return Machine(
        name=path.stem,
        topology=topology(
            [
                replace(gpu, model=name, memory=models[name][1])
                for gpu, name in zip(plan.gpus, names, strict=True)
            ],
            plan.bonds,
        ),
        models={name: model for name, (model, _) in models.items()},
        cuda_version=version,
        driver=replace(driver.pop("like", DEFAULT_BEHAVIOUR), **driver),
    )


def _rows(value: Any, place: Mark) -> list[tuple[Any, Mark]]:
    rows = typed(value, "list", place)
    return list(zip(rows, rows.places, strict=True))


def _read(value: Any, table: Mapping[str, tuple[str, Read]], place: Mark) -> dict[str, Any]:
    fields = typed(value, "dict", place)
    fields.check_known(table)
    return {table[n][0]: table[n][1](one, fields.places[n]) for n, one in fields.items()}


def _model(value: Any, place: Mark) -> tuple[str, tuple[GpuModel, Bytes]]:
    """Return the model of a row by its name, and how much memory its GPUs have."""
    found = _read(value, _MODEL, place)
    for name in ("compute-capability", "name", "sms", "memory"):
        value.required(name)
    memory: Bytes = found.pop("memory")
    model = GpuModel(**found)
    if memory < MEMORY_BLOCK:
        raise value.error("less than one memory block of 256 MiB", "memory")
    if model.context_bytes + model.reserved_bytes >= memory:
        taken = "context-memory" if model.context_bytes else "reserved-memory"
        raise value.error("leaves nothing of the memory", taken)
    return model.name, (model, memory)


def _topology(fields: Fields, size: int) -> Topology:
    if "topology" not in fields:
        return _from_links(fields, size)
    for other in ("links", "numa"):
        if other in fields:
            raise fields.error("given beside topology: only one of them can be right", other)
    place = fields.places["topology"]
    try:
        found = parse_topology(typed(fields["topology"], "str", place), MEMORY_BLOCK, place.source)
    except InputError as error:  # its lines count from the first of the block
        line = place.line + (error.line or 0)
        raise InputError(place.source, f"topology: {error.cause}", line=line) from error
    if len(found.gpus) != size:
        raise place.error(f"has {len(found.gpus)} GPUs, but gpus says {size}")
    return found


def _from_links(fields: Fields, size: int) -> Topology:
    if size > 1 and "links" not in fields:
        raise fields.error("topology or links is missing")
    numa: list[int | None] = [None] * size
    if "numa" in fields:
        place = fields.places["numa"]
        numa = [typed(one, "int", where) for one, where in _rows(fields["numa"], place)]
        if len(numa) != size or any(node not in _NUMA_NODES for node in numa):
            raise place.error(f"expected a NUMA node of 0 to 1023 for each of {size} GPUs")
    bonds: list[list[Bond | None]] = [
        [None if a == b else Bond(Level.SYS) for b in range(size)] for a in range(size)
    ]
    links = typed(fields.below("links"), "dict", fields.places.get("links", fields.place))
    for name, groups in links.items():
        match = _NVLINKS.fullmatch(name)
        if match is None and name not in Level.__members__:
            known = ", ".join(Level.__members__)
            raise links.error(f"no such link; known are NV1, NV2, …, {known}", name)
        bond = Bond(Level.SYS, int(match[1])) if match else Bond(Level[name])
        for group, place in _rows(groups, links.places[name]):
            for a, b in combinations(_members(group, place, size), 2):
                # Not None: the members of a group are different GPUs.
                had = bonds[a][b] or bond
                nvlinks = had.nvlinks + bond.nvlinks
                bonds[a][b] = bonds[b][a] = Bond(max(had.level, bond.level), nvlinks)
    gpus = [
        Gpu(
            index=index,
            minor=index,
            uuid=GpuUUID(f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'gpu {index}')}"),
            bus_id=f"00000000:{index + 1:02X}:00.0",
            model="",
            memory=MEMORY_BLOCK,
            numa_node=numa[index],
        )
        for index in range(size)
    ]
    return topology(gpus, bonds)


def _members(group: Any, place: Mark, size: int) -> list[int]:
    members = [typed(one, "int", where) for one, where in _rows(group, place)]
    if len(members) < 2 or len(set(members)) != len(members):  # noqa: PLR2004 - a pair
        raise place.error("expected two or more different GPUs")
    if not all(0 <= member < size for member in members):
        raise place.error(f"names a GPU that is not among 0 to {size - 1}")
    return members
