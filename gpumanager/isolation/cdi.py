"""What a container is given, as the Container Device Interface says it.

One file for each claim, and one for each allocation of the device plugins where these are handed
over so. Every device has a name that no other ever had: runtimes keep what a name once meant. The
fields are those of version 0.6.0 of the specification. A claim's file carries the grants that it
was made of, as the journal has them: where that is lost, what containers hold is still known.
"""

import json
import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpumanager.gpu.values import Gpu
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal_text import UNREADABLE, Malformed, dump, grant_of, record
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.names import CLAIM_DRIVER

log = logging.getLogger(__name__)

VERSION: Final = "0.6.0"
CLAIM: Final = "claim"
ALLOCATION: Final = "allocation"
KIND: Final = f"{CLAIM_DRIVER}/{CLAIM}"
GRANTS: Final = f"{CLAIM_DRIVER}/grants"
PREFIX: Final = f"{CLAIM_DRIVER}-{CLAIM}_"
SUFFIX: Final = ".json"
HALF: Final = ".tmp"
"""Behind the name of a file that is being written; runtimes pass it over."""
MOUNT_OPTIONS: Final = ("ro", "nosuid", "nodev", "bind")


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A name, without the kind, and what a container with it gets. of: CLAIM or ALLOCATION."""

    name: str
    edits: ContainerEdits
    of: str = CLAIM

    @property
    def kind(self) -> str:
        return f"{CLAIM_DRIVER}/{self.of}"

    @property
    def id(self) -> str:
        return f"{self.kind}={self.name}"


def cdi_name(grant: AllocationID, index: int) -> str:
    """Return the name of the device with this index in its grant."""
    return f"{grant}-{index}"


def spec(devices: Sequence[CdiDevice], grants: Sequence[Grant]) -> str:
    """Return the text of the file, the same for the same devices, which are all of one kind."""
    listed: list[dict[str, Any]] = []
    for one in devices:
        edits: dict[str, Any] = {
            "env": [f"{name}={value}" for name, value in one.edits.envs.items()],
            "deviceNodes": [
                {"path": each.container_path, "hostPath": each.host_path, "permissions": "rwm"}
                for each in one.edits.devices
            ],
            "mounts": [
                {
                    "hostPath": each.host_path,
                    "containerPath": each.container_path,
                    "options": list(MOUNT_OPTIONS),
                }
                for each in one.edits.mounts
            ],
        }
        given = {name: value for name, value in edits.items() if value}
        listed.append({"name": one.name, "containerEdits": given})
    document = {
        "cdiVersion": VERSION,
        "kind": devices[0].kind if devices else KIND,
        **({"annotations": {GRANTS: dump([record(one) for one in grants])}} if grants else {}),
        "devices": listed,
    }
    return json.dumps(document, indent=1) + "\n"


def grants_in(text: str) -> tuple[Grant, ...]:
    """Return the grants that a file was made of. Raises Malformed."""
    try:
        records = json.loads(json.loads(text)["annotations"][GRANTS])
        return tuple(grant_of(one) for one in records)
    except UNREADABLE as error:
        raise Malformed(f"not a CDI file of ours ({type(error).__name__}: {error})") from error


class CdiFiles:
    """Files in one directory: of all claims, by their UIDs, or of all allocations."""

    def __init__(self, directory: Path, of: str = CLAIM) -> None:
        self.directory = directory
        self._prefix = f"{CLAIM_DRIVER}-{of}_"

    def __contains__(self, claim: str) -> bool:
        return self.path(claim).exists()

    def path(self, claim: str) -> Path:
        return self.directory / f"{self._prefix}{claim}{SUFFIX}"

    def write(self, claim: str, text: str) -> None:
        """Write a file whole or not at all: runtimes read the directory. Raises OSError."""
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
        """Remove a file, also where it was never finished. Raises OSError."""
        path = self.path(claim)
        path.unlink(missing_ok=True)
        path.with_name(path.name + HALF).unlink(missing_ok=True)

    def names(self) -> frozenset[str]:
        """Return the claims or allocations that have a file, finished or not."""
        paths = self.directory.glob(f"{self._prefix}*")
        return frozenset(
            one.name.removeprefix(self._prefix).removesuffix(HALF).removesuffix(SUFFIX)
            for one in paths
        )

    def grants(self) -> tuple[Grant, ...]:
        """Return the grants of all files; one that cannot be read has none."""
        found: list[Grant] = []
        for path in sorted(self.directory.glob(f"{self._prefix}*{SUFFIX}")):
            try:
                found += grants_in(path.read_text())
            except (OSError, Malformed) as error:
                log.warning("%s: %s", path, error)
        return tuple(found)

    def keep_only(self, claims: Container[str]) -> None:
        """Remove the files of others, and what was never finished."""
        for path in sorted(self.directory.glob(f"{self._prefix}*")):
            if path.name.removeprefix(self._prefix).removesuffix(SUFFIX) not in claims:
                log.info("removing %s", path)
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class AllocationFiles:
    """How allocations of the device plugins are handed over.

    files: of ALLOCATION. gpus: of the node, as they are now. wanted: from now on each is a CDI
    device. Files that there are go with their allocations, whatever is wanted now.
    """

    files: CdiFiles
    gpus: Callable[[], Sequence[Gpu]]
    wanted: bool
