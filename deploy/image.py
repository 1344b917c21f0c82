"""Put together what the container image holds beside Python: `python deploy/image.py DESTINATION`.

With `--architecture arm64` (or amd64) for another machine than this: packages of others come as
wheels for it, and our own native code is made by the cross compiler of the package `ziglang`.

    DESTINATION/opt/gpu-manager/     the package and what it depends on, compiled, with the shims of
                                     both architectures; on PYTHONPATH
    DESTINATION/usr/local/bin/gpumanager

The Dockerfile copies exactly that, so that it can be looked at where no container engine is. What
only a compiler, a type checker or a test would read is left out. NVIDIA's driver is the host's.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SITE: Final = "opt/gpu-manager"
LAUNCHER: Final = "usr/local/bin/gpumanager"
SCRIPT: Final = """\
#!/bin/sh
exec python3 -P -m gpumanager "$@"
"""
DIRECTORIES: Final = {"__pycache__", "bin", "test", "tests"}
"""Left out, but for these."""
PROGRAMS: Final = ("vcuda_shim", "bin")
SUFFIXES: Final = {
    *(".a", ".c", ".cc", ".cpp", ".h", ".hpp", ".o", ".pxd", ".pxi", ".pyi", ".pyx", ".proto"),
}
NAMES: Final = {"direct_url.json", "example.py", "py.typed"}
"""Where it was built; nvidia-ml-py's example, which lies beside its module; for type checkers."""


ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Machines, by the names that images have for them."""
HERE: Final = os.uname().machine
GLIBC: Final = "2.36"
"""Of the base, Debian 12: the newest that our code and the wheels of others may need."""


def furnish(
    destination: Path,
    *,
    wheel: Path | None = None,
    packages: bool = True,
    shims: bool = True,
    machine: str = HERE,
) -> None:
    """All of it. wheel: ours, where it is built already. packages: those of others, from an index.

    shims: without those for all machines, there are the ones of `machine` alone.
    """
    site = destination / SITE
    with tempfile.TemporaryDirectory() as work:
        ours = wheel or build_wheel(Path(work), machine)
        words = ("install", "--no-compile", "--target", str(site), *wheels_for(machine))
        _pip(*words, *(() if packages else ("--no-deps", "--no-index")), str(ours))
    if shims:
        add_shims(site / "vcuda_shim")
    for path in unwanted(site):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    compile_all(site)
    launcher = destination / LAUNCHER
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(SCRIPT)
    launcher.chmod(0o755)


def build_wheel(folder: Path, machine: str = HERE) -> Path:
    """Ours, for a machine."""
    compiler = shlex.join([sys.executable, "-m", "ziglang", "cc", "-target"])
    foreign = {
        "CC": f"{compiler} {machine}-linux-gnu.{GLIBC}",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",  # by which Python's own builds cross machines
    }
    words = ("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT))
    _pip(*words, environment={} if machine == HERE else foreign)
    (wheel,) = folder.glob(f"*_{machine}.whl")
    return wheel


def wheels_for(machine: str) -> tuple[str, ...]:
    """What tells pip that packages are for another machine than this."""
    if machine == HERE:
        return ()
    newest = int(GLIBC.partition(".")[2])
    tags = (*(f"manylinux_2_{minor}" for minor in range(newest, 16, -1)), "manylinux2014", "linux")
    platforms = (word for tag in tags for word in ("--platform", f"{tag}_{machine}"))
    return ("--only-binary=:all:", "--implementation", "cp", *platforms)


def add_shims(package: Path) -> None:
    """Those of each architecture, by name, beside this machine's own."""
    sys.path.insert(0, str(ROOT))
    from vcuda_shim.build import SEPARATE, build

    build(package, tuple(SEPARATE))


def unwanted(site: Path) -> Iterator[Path]:
    """What is not to be in it, the inner before the outer."""
    for path in sorted(site.rglob("*"), reverse=True):
        parts = path.relative_to(site).parts
        if not (is_wanted((*parts, "any")) if path.is_dir() else is_wanted(parts)):
            yield path


def is_wanted(parts: Sequence[str]) -> bool:
    """Whether a file of the packages, by the parts of its name, is of use to who only runs it."""
    *folders, name = parts
    if tuple(folders) != PROGRAMS and DIRECTORIES & set(folders):
        return False
    return Path(name).suffix not in SUFFIXES and name not in NAMES


def compile_all(site: Path) -> None:
    """Python's own byte code, believed without a look at the sources: nothing changes there."""
    mode = ("--invalidation-mode", "unchecked-hash")
    done = [sys.executable, "-m", "compileall", "-q", *mode, str(site)]
    subprocess.run(done, check=True)


def _pip(*words: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, "-q"]
    subprocess.run(command, check=True, env={**os.environ, **environment})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("destination", type=Path)
    parser.add_argument("--architecture", choices=("", *ARCHITECTURES), default="")
    said = parser.parse_args()
    furnish(said.destination, machine=ARCHITECTURES.get(said.architecture, HERE))
