"""buildah as root, with a store of its own: no image of this machine is seen or touched."""

import os
import subprocess
from pathlib import Path
from typing import Final

STORE: Final = "GPUMANAGER_IMAGE_STORE"
"""Where the images lie that are made; the base's is kept there."""


def store() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(STORE) or home / "gpumanager-image")


def buildah(*words: str, printed: bool = True) -> str:
    """One command of it. printed: for the reader; otherwise what it said is returned.

    Raises subprocess.CalledProcessError.
    """
    places = ("--root", str(store() / "store"), "--runroot", str(store() / "run"))
    done = subprocess.run(
        ["buildah", *places, *words],
        check=True,
        stdout=None if printed else subprocess.PIPE,
        text=True,
    )
    return (done.stdout or "").strip()
