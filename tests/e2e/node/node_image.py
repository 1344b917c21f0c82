"""The one image of the node, made of this host's own files: the programs of the examples with what
they need to run, a shell, and Python with NVIDIA's packages where this Python has them.

It stands for the pause image too: its entry point waits for ever. No registry is asked.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.e2e.node.node_process import SECONDS
from vcuda_shim import PROGRAMS

NAME: Final = "docker.io/library/local:latest"
"""What `image: local` means to a kubelet."""

TOOLS: Final = ("sh", "sleep", "cat", "ls", "env", "true", "kill")
THIRD_PARTY: Final = ("cuda", "pynvml")
OPENED_BY_NAME: Final = ("libdl.so.2", "libpthread.so.0", "libm.so.6")
"""Parts of glibc that Python packages look for when they run."""
_LEFT_OUT: Final = {"test", "tests", "idlelib", "lib2to3", "ensurepip", "site-packages"}
_LEFT_OUT_FOR_SIZE: Final = {"__pycache__", "turtledemo", "tkinter", "config-3.11-x86_64-linux-gnu"}
_ABSOLUTE: Final = re.compile(r"(/\S+) \(0x")


def write_image(archive: Path) -> None:
    """The one of the examples, as `docker save` would write it."""
    own = {
        "Entrypoint": ["/bin/sleep", "infinity"],
        "Env": [f"PATH={SEARCHED}", f"PYTHONPATH={PACKAGES}"],
    }
    write_archive(archive, NAME, dict(_files()), own)


def write_archive(
    archive: Path, image: str, files: Mapping[str, Path], own: Mapping[str, Any]
) -> None:
    """An image of files by their names in it; own: what it says of itself, as `Entrypoint`."""
    layer = _layer(files)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(_config(digest, own)).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [image], "Layers": [f"{digest}/layer.tar"]}]
    parts = {
        name: config,
        f"{digest}/layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(archive, "w") as tar:
        for part, content in parts.items():
            entry = tarfile.TarInfo(part)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _config(layer: str, own: Mapping[str, Any]) -> dict[str, Any]:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    return {
        "architecture": architecture,
        "os": "linux",
        "config": own,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
    }


PACKAGES: Final = "/opt/packages"
SEARCHED: Final = f"{sys.base_prefix}/bin:/usr/local/bin:/bin"


def _layer(files: Mapping[str, Path]) -> bytes:
    """A tar of the files by their names in the image; links are followed."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", dereference=True) as tar:
        for folder in ("tmp", "etc", "dev", "proc", "sys"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for name, file in sorted(files.items()):
            tar.add(file, name.lstrip("/"), recursive=False)
    return layer.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """Names in the image and the host's files for them."""
    programs = [*PROGRAMS.iterdir()]
    yield from ((f"/usr/local/bin/{one.name}", one) for one in programs)
    yield from needed_by(programs)
    yield from tools(TOOLS)
    if all(find_spec(name) for name in THIRD_PARTY):
        packages = [*_packages()]
        yield from packages
        yield from python([file for _, file in packages if ".so" in file.suffixes])


def tools(names: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Programs of this host, in /bin, and what they need."""
    found = {name: Path(file) for name in names if (file := shutil.which(name))}
    yield from ((f"/bin/{name}", file) for name, file in found.items())
    yield from needed_by([*found.values()])


def needed_by(files: list[Path]) -> Iterator[tuple[str, Path]]:
    """Libraries of programs and of Python's extensions, and their loader."""
    listed = subprocess.run(
        ["ldd", *map(str, files)], check=False, capture_output=True, text=True, timeout=SECONDS
    ).stdout
    yield from ((path, Path(path)) for path in _ABSOLUTE.findall(listed) if Path(path).is_file())


def python(extensions: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """This Python where it lies on the host, and what it and these extensions need."""
    home = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = [(str(file), file) for file in below(home / "lib" / version)]
    program = home / "bin" / version
    yield from own
    yield from ((f"{home}/bin/{name}", program) for name in ("python3", version))
    of_python = [file for _, file in own if ".so" in file.suffixes]
    needed = dict(needed_by([program, *of_python, *extensions]))
    yield from needed.items()
    libraries = next(file.parent for name, file in needed.items() if name.endswith("/libc.so.6"))
    yield from ((str(libraries / name), libraries / name) for name in OPENED_BY_NAME)


def _packages() -> Iterator[tuple[str, Path]]:
    for name in THIRD_PARTY:
        spec = find_spec(name)
        for place in (spec and spec.submodule_search_locations) or ():
            folder = Path(place)
            yield from (
                (f"{PACKAGES}/{file.relative_to(folder.parent)}", file) for file in below(folder)
            )
        if spec and spec.origin and not spec.submodule_search_locations:
            yield f"{PACKAGES}/{Path(spec.origin).name}", Path(spec.origin)


def below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if one not in _LEFT_OUT | _LEFT_OUT_FOR_SIZE]
        yield from (Path(place, file) for file in files if not file.endswith((".a", ".pyc")))
