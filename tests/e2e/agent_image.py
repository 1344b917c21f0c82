"""The image of agent, extender and webhook for a node of the tests, made of this checkout.

No container engine runs the Dockerfile here, so it is put together as that would do it: the package
and what it depends on in /opt/gpu-manager without what nobody runs, its launcher, and a Python,
which is this host's instead of Debian's.
"""

import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, Final

import image
import node_image
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "docker.io/library/gpu-manager:e2e"
TOOLS: Final = ("sh", "chroot")
PACKAGES: Final = ("gpumanager", "vcuda_shim")


def write_image(archive: Path, launcher: Path) -> None:
    """launcher: where its script may be written."""
    launcher.write_text(image.SCRIPT)
    launcher.chmod(0o755)
    files = {name: path for name, path in _site() if image.is_wanted(Path(name).parts)}
    site = {f"/{image.SITE}/{name}": path for name, path in files.items()}
    extensions = [path for path in files.values() if ".so" in path.suffixes]
    rest = dict(node_image.tools(TOOLS)) | dict(node_image.python(extensions))
    everything = {**rest, **site, f"/{image.LAUNCHER}": launcher}
    node_image.write_archive(archive, NAME, everything, _said())


def _said() -> dict[str, Any]:
    """As the Dockerfile has it."""
    return {
        "Entrypoint": ["gpumanager"],
        "User": "65532:65532",
        "Env": [
            f"PATH={node_image.SEARCHED}",
            f"PYTHONPATH=/{image.SITE}",
            "PYTHONDONTWRITEBYTECODE=1",
            "GRPC_ENABLE_FORK_SUPPORT=0",
        ],
    }


def _site() -> Iterator[tuple[str, Path]]:
    """Files by their names in the image's packages: of others, then our own."""
    for one in _needed():
        for file in one.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file():
                yield str(file), path
    for package in PACKAGES:
        for path in node_image.below(ROOT / package):
            yield str(path.relative_to(ROOT)), path


def _needed() -> list[Distribution]:
    """What the package requires, and what that requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, Distribution] = {}
    pending = [Requirement(line) for line in project["dependencies"]]
    while pending:
        asked = pending.pop()
        if asked.name in found or (asked.marker and not asked.marker.evaluate({"extra": ""})):
            continue
        found[asked.name] = distribution(asked.name)
        pending += [Requirement(line) for line in found[asked.name].requires or ()]
    return list(found.values())
