"""Container Device Interface: spec files, and what a device of theirs changes in a container.

Follows the CDI library that containerd links (tags.cncf.io/container-device-interface, pkg/cdi), as
far as our files go: of two directories the later one wins; a device that two files of one directory
have is nobody's; a file with an unknown field counts as not there. Edits are applied after all else
that a container was given: a variable replaces the pod's own of that name, a mount the one at its
path.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import NOT_UNDERSTOOD
from gpumanager.sim.container.values import BindMount, ContainerSpec

log = logging.getLogger(__name__)

SUFFIXES: Final = {".json", ".yaml"}
VERSIONS: Final = ("0.6.0", "0.7.0", "0.8.0", "1.0.0")
"""Those that have all fields below."""
SPEC: Final = {"cdiVersion", "kind", "annotations", "devices"}
DEVICE: Final = {"name", "annotations", "containerEdits"}
EDITS: Final = {"env", "deviceNodes", "mounts"}
MOUNT: Final = {"hostPath", "containerPath", "options"}
NODE: Final = {"path", "hostPath", "permissions"}


class CdiUnresolved(GpuManagerError):
    """A container is to have a CDI device that no spec file has: CreateContainer fails."""


def read_specs(directories: Iterable[Path]) -> dict[str, ContainerSpec]:
    """Return the devices of all spec files that are in `directories` now, by qualified name,
    `vendor/class=name`, each as what it adds to a container; a directory need not be there."""
    found: dict[str, ContainerSpec | None] = {}
    for directory in directories:
        here: dict[str, ContainerSpec | None] = {}
        for path in sorted(directory.glob("*")):
            if path.suffix not in SUFFIXES or path.is_dir():
                continue
            try:
                devices = _read(path)
            except (OSError, yaml.YAMLError, *NOT_UNDERSTOOD) as error:
                log.warning("CDI spec %s counts as not there: %s", path, error)
                continue
            here |= {name: None if name in here else edits for name, edits in devices.items()}
        found |= here
    return {name: edits for name, edits in found.items() if edits is not None}


def inject(
    spec: ContainerSpec, devices: Mapping[str, ContainerSpec], names: Sequence[str]
) -> ContainerSpec:
    """Return `spec` with the devices, each once; raises CdiUnresolved, in containerd's words."""
    wanted = tuple(dict.fromkeys(names))
    if missing := [name for name in wanted if name not in devices]:
        raise CdiUnresolved(
            f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        )
    environment, nodes, mounts = dict(spec.environment), spec.devices, spec.mounts
    for edits in (devices[name] for name in wanted):
        environment |= edits.environment
        nodes = _replaced(nodes, edits.devices)
        if edits.mounts:  # those below others come after them
            mounts = tuple(sorted(_replaced(mounts, edits.mounts), key=_depth))
    return replace(spec, environment=environment, devices=nodes, mounts=mounts)


def _replaced(before: Iterable[BindMount], added: Iterable[BindMount]) -> tuple[BindMount, ...]:
    """Return both; of two at one path of the container the later one, in its place."""
    found = {one.container: one for one in before}
    for one in added:
        found.pop(one.container, None)
        found[one.container] = one
    return tuple(found.values())


def _depth(mount: BindMount) -> int:
    return len(PurePosixPath(mount.container).parts)


def _read(path: Path) -> dict[str, ContainerSpec]:
    """Return the devices of one file by qualified name; raises ValueError."""
    spec = _known(yaml.safe_load(path.read_text()), SPEC)
    kind, version = str(spec.get("kind", "")), str(spec.get("cdiVersion", ""))
    if version not in VERSIONS:
        raise ValueError(f'invalid version "{version}"')
    if not all(kind.partition("/")[::2]):
        raise ValueError(f'invalid kind "{kind}"')
    rows = [_known(row, DEVICE) for row in spec.get("devices") or ()]
    found = {f"{kind}={row['name']}": _edits(row.get("containerEdits")) for row in rows}
    if not found or len(found) != len(rows):
        raise ValueError("invalid spec, no devices or two of one name")
    return found


def _edits(value: Any) -> ContainerSpec:
    edits = _known(value or {}, EDITS)
    pairs = [str(row).partition("=") for row in edits.get("env") or ()]
    for name, mark, _ in pairs:
        if not name or not mark:
            raise ValueError(f'invalid environment variable "{name}"')
    nodes = [_known(row, NODE) for row in edits.get("deviceNodes") or ()]
    mounts = [_known(row, MOUNT) for row in edits.get("mounts") or ()]
    return ContainerSpec(
        command=(),
        environment={name: value for name, _, value in pairs},
        devices=tuple(BindMount(row.get("hostPath") or row["path"], row["path"]) for row in nodes),
        mounts=tuple(
            BindMount(row["hostPath"], row["containerPath"], "ro" in (row.get("options") or ()))
            for row in mounts
        ),
    )


def _known(value: Any, fields: set[str]) -> Mapping[str, Any]:
    """Return an object with no other fields; raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004 - as of no YAML
    if unknown := value.keys() - fields:
        raise ValueError(f'unknown field "{min(unknown)}"')
    return value
