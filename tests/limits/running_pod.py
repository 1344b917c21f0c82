"""A pod of one container that runs on a simulated node with a real agent."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Running:
    """files: its /etc/vcuda. virtual: the directory of all of them."""

    uid: str
    container_id: str
    files: Path
    virtual: Path
