"""The image of agent, extender and webhook for a node of the tests, made of this checkout.

It is the one that `make release` makes, where `tests/e2e/run.py` could build that: it needs a
package index and Debian's, and the node has no network. Elsewhere it is put together as that would
do it: the package and what it depends on in /opt/gpu-manager without what nobody runs, its
launcher, and a Python, which is this host's instead of Debian's.
"""

import os
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

import dockerfile
import image
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpumanager
from tests import ROOT
from tests.e2e.node import node_image, node_programs

RELEASED: Final = f"docker.io/library/gpu-manager:{gpumanager.__version__}"
NAME: Final = "docker.io/library/gpu-manager:e2e"
"""Of the other one."""
TOOLS: Final = ("sh", "chroot")
PACKAGES: Final = ("gpumanager", "vcuda_shim")


def name() -> str:
    """Of the one there is."""
    return RELEASED if os.environ.get(node_programs.IMAGE) else NAME


def archive(place: Callable[[str], Path]) -> Path:
    """It, written where it is not released. place: for a file by its name."""
    if released := os.environ.get(node_programs.IMAGE):
        return Path(released)
    made = place("agent-image.tar")
    write_image(made, place("gpumanager"))
    return made


def write_image(archive: Path, launcher: Path) -> None:
    """launcher: where its script may be written."""
    launcher.write_text(image.SCRIPT)
    launcher.chmod(0o755)
    files = packaged()
    site = {f"/{image.SITE}/{name}": path for name, path in files.items()}
    extensions = [path for path in files.values() if ".so" in path.suffixes]
    rest = dict(node_image.tools(TOOLS)) | dict(node_image.python(extensions))
    everything = {**rest, **site, f"/{image.LAUNCHER}": launcher}
    said = dockerfile.read(dockerfile.FILE.read_text()).config(path=node_image.SEARCHED)
    node_image.write_archive(archive, NAME, everything, said)


def packaged() -> dict[str, Path]:
    """Files by their names in the image's packages."""
    return {name: path for name, path in _installed() if image.is_wanted(Path(name).parts)}


def _installed() -> Iterator[tuple[str, Path]]:
    """Of others, then our own."""
    for one in needed():
        for file in one.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file():
                yield str(file), path
    for package in PACKAGES:
        for path in node_image.below(ROOT / package):
            yield str(path.relative_to(ROOT)), path


def needed() -> list[Distribution]:
    """What the package requires, and what that requires, by their extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pending = [Requirement(line) for line in project["dependencies"]]
    seen: set[str] = set()
    found: dict[str, Distribution] = {}
    while pending:
        asked = pending.pop()
        if str(asked) in seen:
            continue
        seen.add(str(asked))
        one = distribution(asked.name)
        found[canonicalize_name(asked.name)] = one
        pending += [
            word for line in one.requires or () if _applies(word := Requirement(line), asked)
        ]
    return list(found.values())


def _applies(one: Requirement, asked: Requirement) -> bool:
    """Whether who is asked for with these extras requires that one here."""
    extras = ("", *asked.extras)
    return not one.marker or any(one.marker.evaluate({"extra": extra}) for extra in extras)
