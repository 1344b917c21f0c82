"""What a container is given, as the Container Device Interface says it, in one file per claim.

Every device has a name that no other ever had: runtimes keep what a name once meant. The fields are
those of version 0.6.0 of the specification. A file carries the grants that it was made of, as the
journal has them: where that is lost, what containers hold is still known.
"""

import json
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpumanager.dra.claim import DRIVER
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal_text import UNREADABLE, Malformed, dump, grant_of, record
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.virtual.values import AllocationID

log = logging.getLogger(__name__)

VERSION: Final = "0.6.0"
CLASS: Final = "claim"
KIND: Final = f"{DRIVER}/{CLASS}"
GRANTS: Final = f"{DRIVER}/grants"
PREFIX: Final = f"{DRIVER}-{CLASS}_"
SUFFIX: Final = ".json"
HALF: Final = ".tmp"
"""Behind the name of a file that is being written; runtimes pass it over."""
MOUNT_OPTIONS: Final = ("ro", "nosuid", "nodev", "bind")


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A name, without the kind, and what a container with it gets."""

    name: str
    edits: ContainerEdits

    @property
    def id(self) -> str:
        return f"{KIND}={self.name}"


def cdi_name(grant: AllocationID, index: int) -> str:
    """Of the device with this index in its grant."""
    return f"{grant}-{index}"


def spec(devices: Sequence[CdiDevice], grants: Sequence[Grant]) -> str:
    """The text of the file, the same for the same devices."""
    document = {
        "cdiVersion": VERSION,
        "kind": KIND,
        "annotations": {GRANTS: dump([record(one) for one in grants])},
        "devices": [{"name": one.name, "containerEdits": _edits(one.edits)} for one in devices],
    }
    return json.dumps(document, indent=1) + "\n"


def grants_in(text: str) -> tuple[Grant, ...]:
    """Those that a file was made of; raises Malformed."""
    try:
        records = json.loads(json.loads(text)["annotations"][GRANTS])
        return tuple(grant_of(one) for one in records)
    except UNREADABLE as error:
        raise Malformed(f"not a CDI file of ours ({type(error).__name__}: {error})") from error


def _edits(edits: ContainerEdits) -> dict[str, Any]:
    found: dict[str, Any] = {
        "env": [f"{name}={value}" for name, value in edits.envs.items()],
        "deviceNodes": [
            {"path": one.container_path, "hostPath": one.host_path, "permissions": "rwm"}
            for one in edits.devices
        ],
        "mounts": [
            {
                "hostPath": one.host_path,
                "containerPath": one.container_path,
                "options": list(MOUNT_OPTIONS),
            }
            for one in edits.mounts
        ],
    }
    return {name: value for name, value in found.items() if value}


class CdiFiles:
    """The files of all claims in one directory, by the UIDs of the claims."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __contains__(self, claim: str) -> bool:
        return self.path(claim).exists()

    def path(self, claim: str) -> Path:
        return self.directory / f"{PREFIX}{claim}{SUFFIX}"

    def write(self, claim: str, text: str) -> None:
        """Whole or not at all, for whoever reads the directory meanwhile. Raises OSError."""
        path = self.path(claim)
        half = path.with_name(path.name + HALF)
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            half.write_text(text)
            half.replace(path)
        except OSError:
            half.unlink(missing_ok=True)
            raise

    def remove(self, claim: str) -> None:
        self.path(claim).unlink(missing_ok=True)

    def grants(self) -> tuple[Grant, ...]:
        """Of all files; one that cannot be read has none."""
        found: list[Grant] = []
        for path in sorted(self.directory.glob(f"{PREFIX}*{SUFFIX}")):
            try:
                found += grants_in(path.read_text())
            except (OSError, Malformed) as error:
                log.warning("%s: %s", path, error)
        return tuple(found)

    def keep_only(self, claims: Container[str]) -> None:
        """Remove the files of others, and what was never finished."""
        for path in sorted(self.directory.glob(f"{PREFIX}*")):
            if path.name.removeprefix(PREFIX).removesuffix(SUFFIX) not in claims:
                log.info("removing %s", path)
                path.unlink(missing_ok=True)
