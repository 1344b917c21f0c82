"""Put together what the container image holds beside Python: `python deploy/image.py DESTINATION`.

    DESTINATION/opt/gpu-manager/     the package and what it depends on, compiled, with the shims of
                                     both architectures; on PYTHONPATH
    DESTINATION/usr/local/bin/gpumanager

The Dockerfile copies exactly that, so that it can be looked at where no container engine is. What
only a compiler, a type checker or a test would read is left out. NVIDIA's driver is the host's.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
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


def furnish(destination: Path, *, dependencies: bool = True, machines: bool = True) -> None:
    """All of it. dependencies: without, nothing is asked of a package index.

    machines: without, there are the shims of this machine alone.
    """
    site = destination / SITE
    with tempfile.TemporaryDirectory() as work:
        _pip("wheel", "--no-deps", "--no-build-isolation", "-w", work, str(ROOT))
        (wheel,) = Path(work).glob("*.whl")
        words = ("install", "--no-compile", "--target", str(site))
        _pip(*words, *(() if dependencies else ("--no-deps",)), str(wheel))
    if machines:
        add_shims(site / "vcuda_shim")
    for path in unwanted(site):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    compile_all(site)
    launcher = destination / LAUNCHER
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(SCRIPT)
    launcher.chmod(0o755)


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


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, "-q"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("destination", type=Path)
    furnish(parser.parse_args().destination)
