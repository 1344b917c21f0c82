"""What one container is made of, and how the two sides of the start hand it over."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class BindMount:
    """A path of the host shown in the container: a mount or a device of the Allocate response."""

    host: str
    container: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """All that a runtime is told of one container.

    directory: where the command starts; None for `/`. environment: the whole of it.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None
    devices: tuple[BindMount, ...] = ()
    mounts: tuple[BindMount, ...] = ()

    def text(self) -> str:
        """Return it as `read` takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        fields = json.loads(text)
        for name in ("devices", "mounts"):
            fields[name] = tuple(BindMount(**row) for row in fields[name])
        return cls(**{**fields, "command": tuple(fields["command"])})
