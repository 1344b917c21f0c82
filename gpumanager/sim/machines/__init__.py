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
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeVar

from gpumanager.errors import InputError
from gpumanager.gpu.topology_text import parse_topology
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.sim.machine import (
    BEHAVIOURS,
    DEFAULT_BEHAVIOUR,
    DriverBehaviour,
    GpuModel,
    Machine,
    UtilizationSamples,
)
from gpumanager.sim.manifest.yaml_text import Value, documents, read_text
from gpumanager.units import MEMORY_BLOCK, Bytes, parse_bytes

MOST_GPUS: Final = 16
"""As many as the simulated driver's shared state has room for."""
_CUDA_VERSIONS: Final = range(1000, 1_000_000)
"""As the driver says its own: 12050 is 12.5."""
_NUMA_NODES: Final = range(1024)
_LARGEST_GPU: Final = 1 << 40
GB: Final = 10**9
_LONGEST_NAME: Final = 95
"""Bytes: what NVML's buffer for a name has room for."""
_FIELDS: Final = frozenset(
    {"models", "gpus", "topology", "links", "numa", "cuda-version", "driver"}
)
_MODEL_FIELDS: Final = frozenset(
    {
        "name",
        "memory",
        "sms",
        "compute-capability",
        "threads-per-sm",
        "context-memory",
        "reserved-memory",
        "link-bandwidth",
        "memory-bandwidth",
    }
)
_SAMPLES: Final = {one.name.lower().replace("_", "-"): one for one in UtilizationSamples}
_MICROSECONDS: Final = {
    "time-slice": "slice_ns",
    "switch-cost": "switch_ns",
    "event-floor": "event_floor_ns",
    "event-floor-idle": "event_idle_ns",
}
_SIZES: Final = {"page": "page_bytes", "slab-most": "slab_most_bytes"}
_SWITCHES: Final = {
    "hides-managed": "hides_managed",
    "counts-imports": "counts_imports",
    "local-memory": "local_memory",
    "hmm": "hmm",
    "hides-memory": "hides_memory",
}
_DRIVER_FIELDS: Final = frozenset(
    {*_MICROSECONDS, *_SIZES, *_SWITCHES, "like", "queue-depth", "samples"}
)
_HERE: Final = Path(__file__).resolve().parent
_NVLINKS: Final = re.compile(r"NV([1-9][0-9]?)")
_CAPABILITY: Final = re.compile(r"([0-9]{1,2})\.([0-9])")

T = TypeVar("T")


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
    values = documents(read_text(path), str(path))
    if len(values) != 1:
        raise InputError(path, f"expected one description of a machine, found {len(values)}")
    value = values[0]
    fields = value.fields(_FIELDS)
    models = [_model(item) for item in fields.required("models").items()]
    if not models:
        raise fields["models"].error("names no model")
    by_name = {model.name: (model, memory) for model, memory in models}
    if len(by_name) < len(models):
        raise fields["models"].error("two models of one name")
    wanted = fields.required("gpus")
    names = wanted.items() if wanted.kind == "a list" else []
    count = len(names) if wanted.kind == "a list" else wanted.integer()
    if not 0 < count <= MOST_GPUS:
        raise wanted.error(f"expected 1 to {MOST_GPUS} GPUs, found {count}")
    for name in names:
        if name.text() not in by_name:
            raise name.error(f"no model {name.text()!r} among {', '.join(by_name)}")
    chosen = [by_name[name.text()] for name in names] or [models[0]] * count
    found = _topology(fields, value, len(chosen))
    gpus = [
        replace(gpu, model=model.name, memory=memory)
        for gpu, (model, memory) in zip(found.gpus, chosen, strict=True)
    ]
    version = fields.get("cuda-version")
    if version is not None and version.integer() not in _CUDA_VERSIONS:
        raise version.error(f"expected for example 12050 for CUDA 12.5, found {version.integer()}")
    return Machine(
        name=path.stem,
        topology=topology(gpus, found.bonds),
        models={model.name: model for model, _ in models},
        cuda_version=12050 if version is None else version.integer(),
        driver=_driver(fields.get("driver")),
    )


def _driver(value: Value | None) -> DriverBehaviour:
    if value is None:
        return DEFAULT_BEHAVIOUR
    fields = value.fields(_DRIVER_FIELDS)
    base = DEFAULT_BEHAVIOUR
    found: dict[str, Any] = {}
    for name, field in fields.items():
        if name == "like":
            base = _one_of(BEHAVIOURS, field)
        elif name in _MICROSECONDS:
            if not 0 <= field.integer() <= 1 << 20:
                raise field.error(f"expected microseconds from 0, found {field.integer()}")
            found[_MICROSECONDS[name]] = field.integer() * 1000
        elif name in _SIZES:
            found[_SIZES[name]] = _size(field)
        elif name in _SWITCHES:
            found[_SWITCHES[name]] = field.boolean()
        elif name == "queue-depth":
            found["queue_depth"] = _positive(field)
        else:
            found["samples"] = _one_of(_SAMPLES, field)
    return replace(base, **found)


def _one_of(words: Mapping[str, T], value: Value) -> T:
    if value.text() not in words:
        raise value.error(f"expected one of {', '.join(words)}, found {value.text()!r}")
    return words[value.text()]


def _model(value: Value) -> tuple[GpuModel, Bytes]:
    fields = value.fields(_MODEL_FIELDS)
    capability = fields.required("compute-capability")
    match = _CAPABILITY.fullmatch(capability.scalar())
    if match is None:
        raise capability.error(f"expected for example 8.0, found {capability.scalar()!r}")
    name = fields.required("name")
    written = name.text()
    if not written.strip() or not written.isprintable() or len(written.encode()) > _LONGEST_NAME:
        raise name.error(f"expected a name of 1 to {_LONGEST_NAME} printable characters")
    model = GpuModel(
        name=written,
        sm_count=_positive(fields.required("sms")),
        compute_capability=(int(match[1]), int(match[2])),
        max_threads_per_sm=_positive(fields.get("threads-per-sm"), 2048),
        context_bytes=_size(fields["context-memory"]) if "context-memory" in fields else 0,
        reserved_bytes=_size(fields["reserved-memory"]) if "reserved-memory" in fields else 0,
        link_bandwidth=_positive(fields.get("link-bandwidth"), 0) * GB,
        memory_bandwidth=_positive(fields.get("memory-bandwidth"), 0) * GB,
    )
    memory = fields.required("memory")
    if _size(memory) < MEMORY_BLOCK:
        raise memory.error("less than one memory block of 256 MiB")
    if model.context_bytes + model.reserved_bytes >= _size(memory):
        taken = "context-memory" if model.context_bytes else "reserved-memory"
        raise fields[taken].error("leaves nothing of the memory")
    return model, _size(memory)


def _positive(value: Value | None, default: int = 1) -> int:
    if value is None:
        return default
    if not 0 < value.integer() <= 1 << 20:
        raise value.error(f"expected a number from 1, found {value.integer()}")
    return value.integer()


def _size(value: Value) -> Bytes:
    try:
        amount = parse_bytes(value.scalar())
    except ValueError as error:
        raise value.error(str(error)) from error
    if amount > _LARGEST_GPU:
        raise value.error("larger than any GPU")
    return amount


def _topology(fields: Mapping[str, Value], value: Value, size: int) -> Topology:
    if "topology" not in fields:
        return _from_links(fields, value, size)
    for other in ("links", "numa"):
        if other in fields:
            raise fields[other].error("given beside topology: only one of them can be right")
    text = fields["topology"]
    try:
        found = parse_topology(text.text(), MEMORY_BLOCK, text.source)
    except InputError as error:  # its lines count from the first of the block
        line = text.line + error.line if error.line is not None else text.line
        raise InputError(text.source, f"topology: {error.cause}", line=line) from error
    if len(found.gpus) != size:
        raise text.error(f"has {len(found.gpus)} GPUs, but gpus says {size}")
    return found


def _from_links(fields: Mapping[str, Value], value: Value, size: int) -> Topology:
    if size > 1 and "links" not in fields:
        raise value.error("topology or links is missing")
    numa: list[int | None] = [None] * size
    if (nodes := fields.get("numa")) is not None:
        numa = [item.integer() for item in nodes.items()]
        if len(numa) != size or any(node not in _NUMA_NODES for node in numa):
            raise nodes.error(f"expected a NUMA node of 0 to 1023 for each of {size} GPUs")
    bonds: list[list[Bond | None]] = [
        [None if a == b else Bond(Level.SYS) for b in range(size)] for a in range(size)
    ]
    for name, groups in (fields["links"].fields() if "links" in fields else {}).items():
        if match := _NVLINKS.fullmatch(name):
            bond = Bond(Level.SYS, int(match[1]))
        elif name in Level.__members__:
            bond = Bond(Level[name])
        else:
            known = ", ".join(Level.__members__)
            raise groups.error(f"no such link; known are NV1, NV2, …, {known}")
        for group in groups.items():
            for a, b in combinations(_members(group, size), 2):
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


def _members(group: Value, size: int) -> list[int]:
    members = [item.integer() for item in group.items()]
    if len(members) < 2 or len(set(members)) != len(members):  # noqa: PLR2004 - a pair
        raise group.error("expected two or more different GPUs")
    if not all(0 <= member < size for member in members):
        raise group.error(f"names a GPU that is not among 0 to {size - 1}")
    return members
