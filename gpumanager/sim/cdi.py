"""Container Device Interface: spec files, and what a device of theirs changes in a container.

Follows the CDI library that containerd links (tags.cncf.io/container-device-interface, pkg/cdi): of
two directories the later one wins; a device that two files of one directory have is nobody's; a
file with an unknown field, or with a field that is younger than its version, counts as not there.
A spec's own edits come once, before those of its devices. They are applied after all else that a
container was given: a variable replaces the pod's own of that name, a mount the one at its path.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import NOT_UNDERSTOOD
from gpumanager.sim.container.values import BindMount, ContainerSpec

SUFFIXES: Final = {".json", ".yaml"}
VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0")
SPEC: Final = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
DEVICE: Final = {"name", "annotations", "containerEdits"}
EDITS: Final = {"env", "deviceNodes", "hooks", "mounts", "intelRdt", "additionalGids"}
MOUNT: Final = {"hostPath", "containerPath", "options", "type"}
NODE: Final = {
    *("path", "hostPath", "type", "major", "minor"),
    *("fileMode", "permissions", "uid", "gid"),
}


class CdiUnresolved(GpuManagerError):
    """A container is to have a CDI device that no spec file has: CreateContainer fails."""


@dataclass(frozen=True, slots=True)
class SpecEdits:
    """What is added to a container; hooks and the like mean nothing to a simulated one."""

    env: tuple[tuple[str, str], ...] = ()
    devices: tuple[BindMount, ...] = ()
    mounts: tuple[BindMount, ...] = ()


@dataclass(frozen=True, slots=True)
class SpecDevice:
    """path: of the file that has it. shared: the edits of the whole file."""

    path: Path
    edits: SpecEdits
    shared: SpecEdits


@dataclass(frozen=True, slots=True)
class CdiSpecs:
    """devices: by qualified name, `vendor/class=name`. errors: why something is left out."""

    devices: Mapping[str, SpecDevice] = field(default_factory=dict)
    errors: tuple[str, ...] = ()


def read_specs(directories: Sequence[Path]) -> CdiSpecs:
    """Return all spec files that are in `directories` now; a directory need not be there."""
    found: dict[str, SpecDevice] = {}
    errors: list[str] = []
    conflicts: set[str] = set()
    files = [
        path
        for directory in directories
        if directory.is_dir()
        for path in sorted(directory.iterdir())
        if path.suffix in SUFFIXES and not path.is_dir()
    ]
    for path in files:
        try:
            devices = dict(_read(path))
        except (OSError, yaml.YAMLError, *NOT_UNDERSTOOD) as error:
            errors.append(f"failed to load CDI Spec {path}: {error}")
            continue
        for name, device in devices.items():
            if name in found and found[name].path.parent == path.parent:
                both = f'"{found[name].path}", "{path}"'
                errors.append(f'conflicting device "{name}" (specs {both})')
                conflicts.add(name)
            found[name] = device
    kept = {name: device for name, device in found.items() if name not in conflicts}
    return CdiSpecs(kept, tuple(errors))


def inject(spec: ContainerSpec, registry: CdiSpecs, names: Sequence[str]) -> ContainerSpec:
    """Return `spec` with the devices, each once; raises CdiUnresolved, in containerd's words."""
    wanted = tuple(dict.fromkeys(names))
    if missing := [name for name in wanted if name not in registry.devices]:
        raise CdiUnresolved(
            f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        )
    devices = [registry.devices[name] for name in wanted]
    shared = {device.path: device.shared for device in devices}
    edits = [edit for one in devices for edit in (shared.pop(one.path, None), one.edits) if edit]
    environment = dict(chain.from_iterable(edit.env for edit in edits))
    mounts = _replaced(spec.mounts, chain.from_iterable(edit.mounts for edit in edits))
    return replace(
        spec,
        environment={**spec.environment, **environment},
        devices=_replaced(spec.devices, chain.from_iterable(edit.devices for edit in edits)),
        mounts=tuple(sorted(mounts, key=_depth)) if any(e.mounts for e in edits) else mounts,
    )


def _replaced(before: Sequence[BindMount], added: Iterator[BindMount]) -> tuple[BindMount, ...]:
    """Return both; of two at one path of the container the later one, in its place."""
    found = {one.container: one for one in before}
    for one in added:
        found.pop(one.container, None)
        found[one.container] = one
    return tuple(found.values())


def _depth(mount: BindMount) -> int:
    """Sort mounts below others after them."""
    return len(PurePosixPath(mount.container).parts)


def _read(path: Path) -> Iterator[tuple[str, SpecDevice]]:
    """Yield the devices of one file by qualified name; raises ValueError."""
    spec = _known(yaml.safe_load(path.read_text()), SPEC)
    kind, version = str(spec.get("kind", "")), str(spec.get("cdiVersion", ""))
    if version.removeprefix("v") not in VERSIONS:
        raise ValueError(f'invalid version "{version}"')
    needed = max(_versions_needed(spec), default="0.3.0")
    if needed > version.removeprefix("v"):  # of one digit each, so that text compares as they do
        raise ValueError(f"the spec version must be at least v{needed}")
    if not all(kind.partition("/")[::2]):
        raise ValueError(f'invalid kind "{kind}"')
    shared = _edits(spec.get("containerEdits"))
    rows = [_known(row, DEVICE) for row in spec.get("devices") or ()]
    names = [str(row["name"]) for row in rows]
    if not names or len(set(names)) != len(names):
        raise ValueError("invalid spec, no devices or two of one name")
    for name, row in zip(names, rows, strict=True):
        edits = _edits(row.get("containerEdits"))
        yield f"{kind}={name}", SpecDevice(path, edits, shared)


def _versions_needed(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first versions that have what a spec uses (specs-go/version.go)."""
    devices = spec.get("devices") or ()
    edits = [row.get("containerEdits") or {} for row in (spec, *devices)]
    if any(mount.get("type") for one in edits for mount in one.get("mounts") or ()):
        yield "0.4.0"
    if any(node.get("hostPath") for one in edits for node in one.get("deviceNodes") or ()):
        yield "0.5.0"
    if any(str(row.get("name", ""))[:1].isdigit() for row in devices):
        yield "0.5.0"
    if (
        any(row.get("annotations") for row in (spec, *devices))
        or "." in str(spec.get("kind", "")).rpartition("/")[2]
    ):
        yield "0.6.0"
    if any(one.get("intelRdt") or one.get("additionalGids") for one in edits):
        yield "0.7.0"


def _edits(value: Any) -> SpecEdits:
    edits = _known(value or {}, EDITS)
    pairs = [str(row).partition("=") for row in edits.get("env") or ()]
    for name, mark, _ in pairs:
        if not name or not mark:
            raise ValueError(f'invalid environment variable "{name}"')
    nodes = [_known(row, NODE) for row in edits.get("deviceNodes") or ()]
    mounts = [_known(row, MOUNT) for row in edits.get("mounts") or ()]
    return SpecEdits(
        env=tuple((name, value) for name, _, value in pairs),
        devices=tuple(BindMount(row.get("hostPath") or row["path"], row["path"]) for row in nodes),
        mounts=tuple(
            BindMount(
                row["hostPath"], row["containerPath"], read_only="ro" in (row.get("options") or ())
            )
            for row in mounts
        ),
    )


def _known(value: Any, fields: set[str]) -> Mapping[str, Any]:
    """Return an object with no other fields; raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("failed to unmarshal CDI Spec: no object")  # noqa: TRY004 - as of no YAML
    if unknown := value.keys() - fields:
        raise ValueError(f'failed to unmarshal CDI Spec: unknown field "{min(unknown)}"')
    return value
