"""What the Dockerfile says, for those who make or look at an image: a frozen value of its text."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = ROOT / "Dockerfile"


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """base: the image of both stages; the rest: what the last stage says of the image."""

    base: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    user: str
    environment: tuple[str, ...]

    @property
    def python(self) -> str:
        """Of the base: `3.13`."""
        return self._base_tag[0]

    @property
    def debian(self) -> str:
        """The release of the base: `bookworm`."""
        return self._base_tag[-1]

    @property
    def _base_tag(self) -> list[str]:
        return self.base.rpartition(":")[2].split("-")

    def config(self, *, path: str) -> dict[str, Any]:
        """As an image's own configuration has it. path: the base's search path."""
        return {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "User": self.user,
            "Env": [f"PATH={path}", *self.environment],
        }


def read(text: str) -> Dockerfile:
    lines = re.sub(r"\\\n", " ", text).splitlines()
    instructions = [line.partition(" ") for line in lines if re.match(r"[A-Z]+ ", line)]
    base = next(rest for verb, _, rest in instructions if verb == "ARG")
    start = max(at for at, (verb, _, _) in enumerate(instructions) if verb == "FROM")
    last = {verb: rest for verb, _, rest in instructions[start:]}
    return Dockerfile(
        base=base.removeprefix("PYTHON="),
        entrypoint=tuple(json.loads(last["ENTRYPOINT"])),
        command=tuple(json.loads(last["CMD"])),
        user=last["USER"],
        environment=tuple(shlex.split(last["ENV"])),
    )
