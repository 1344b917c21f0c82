"""Test suites of others: fetched from the package registries that this machine uses, and built.

Each version is pinned, by a hash where the registry's own client does not check one of ours. What
is built lies under build/clients, one folder for each, and is used again while its pins hold.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.native.table.fetch_real_libraries import NotThere, mirrors
from tests.native.table.fetch_real_libraries import Suite as DebianSuite
from vcuda_shim import LINK_CUDA

ROOT: Final = Path(__file__).resolve().parents[2]
BUILT: Final = ROOT / "build" / "clients"
GO_MODULE: Final = Path(__file__).with_name("go")
NVIDIA: Final = Path(sysconfig.get_path("purelib")) / "nvidia"
"""CUDA's headers and nvrtc, as the extra `clients` brings them."""

SECONDS: Final = 1200.0


class Unavailable(Exception):
    """What this machine lacks for a suite."""


def run(*command: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What it prints; raises AssertionError with its last lines where it fails."""
    finished = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert finished.returncode == 0, f"{command}: {finished.stderr[-3000:]}"
    return finished.stdout


def fetch(*command: str, folder: Path) -> str:
    """The same for what needs a registry, which not every machine reaches."""
    try:
        return run(*command, folder=folder)
    except AssertionError as error:
        last = str(error).strip().splitlines()[-1]
        raise Unavailable(f"{command[0]} could not fetch it: {last}") from None


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not on this machine")


def built(name: str, build: Callable[[Path], None]) -> Path:
    """The folder of that name, built where it is not there; it appears when it is whole."""
    target = BUILT / name
    if not target.exists():
        partial = target.with_name(f"{name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        build(partial)
        partial.rename(target)
    return target


def sdist(folder: Path, name: str, version: str, sha256: str) -> Path:
    """A source distribution of the Python package index, unpacked into `folder`."""
    (folder / "pin.txt").write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"--no-binary={name}")
    fetch(*pip, "--require-hashes", "-r", "pin.txt", folder=folder)
    with tarfile.open(folder / f"{name}-{version}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"{name}-{version}"


def pycuda(folder: Path) -> None:
    """Built as its manual says, with the link library that programs in containers are built with:
    with the package's Boost, without curand. Its tests lie beside what is installed."""
    need("g++")
    source = sdist(
        folder,
        "pycuda",
        "2026.1",
        "759516160628ba06f32ce7e563e3f5b9214691dc9528a03ea99ea1073f4e14ba",
    )
    includes = [str(NVIDIA / name / "include") for name in ("cuda_runtime", "cuda_profiler_api")]
    (source / "siteconf.py").write_text(
        f"CUDA_ROOT = None\nCUDA_INC_DIR = {includes}\nCUDADRV_LIB_DIR = ['{LINK_CUDA.parent}']\n"
        "CUDA_ENABLE_CURAND = False\n"
    )
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps")
    run(*pip, "--target", str(folder / "installed"), ".", folder=source)


def pynvml(folder: Path) -> None:
    sdist(
        folder,
        "pynvml",
        "13.0.1",
        "1245991d9db786b4d2f277ce66869bd58f38ac654e38c9397d18f243c8f6e48f",
    )


def tinygrad(folder: Path) -> None:
    """Of its tests the source distribution has the first file."""
    sdist(
        folder,
        "tinygrad",
        "0.14.0",
        "437be6bb7481ec26e332e4f4342f6ea09e41258e62c5c09f4a9ed7aeb7829a07",
    )


def numba(folder: Path) -> None:
    """The last release that calls the driver by ctypes, with what it needs and pytest."""
    pip = (sys.executable, "-m", "pip", "install", "-q", "--target", ".")
    fetch(*pip, "numba==0.61.2", "psutil==7.1.3", "pytest==9.0.1", folder=folder)


def go(folder: Path) -> None:
    """The tests of two modules, go-nvml's examples and the program of ours that asks all."""
    need("go", "gcc")
    fetch("go", "mod", "download", folder=GO_MODULE)
    cuda = {
        "CGO_CFLAGS": f"-I{NVIDIA / 'cuda_runtime' / 'include'}",
        "CGO_LDFLAGS": f"-L{LINK_CUDA.parent} -Wl,-rpath-link,{LINK_CUDA.parent}",
        "GOFLAGS": "-mod=readonly",
    }
    for package in ("github.com/NVIDIA/go-nvml/pkg/nvml", "gorgonia.org/cu"):
        output = folder / f"{package.rpartition('/')[2]}.test"
        run("go", "test", "-c", "-o", str(output), package, folder=GO_MODULE, environment=cuda)
    for package in ("./methods", *(f"github.com/NVIDIA/go-nvml/examples/{e}" for e in EXAMPLES)):
        run("go", "build", "-o", f"{folder}/", package, folder=GO_MODULE, environment=cuda)


EXAMPLES: Final = ("compute-processes", "devices", "gpm-metrics")


def go_sources(module: str) -> Path:
    """Where a module's own files are, in which its tests run."""
    return Path(fetch("go", "list", "-m", "-f", "{{.Dir}}", module, folder=GO_MODULE).strip())


def crate(name: str, version: str, sha256: str, features: str) -> Callable[[Path], None]:
    """A crate's library tests as one program, `tests`."""

    def build(folder: Path) -> None:
        need("cargo", "gcc")
        fetch("cargo", "init", "-q", "--lib", "--vcs=none", "--name=pin", ".", folder=folder)
        with (folder / "Cargo.toml").open("a") as manifest:
            manifest.write(f'{name} = {{ version = "={version}", default-features = false }}\n')
        fetch("cargo", "fetch", "-q", folder=folder)
        assert f'checksum = "{sha256}"' in (folder / "Cargo.lock").read_text(), "another crate"
        packages = json.loads(
            run("cargo", "metadata", "--format-version=1", "--offline", folder=folder)
        )["packages"]
        (manifest_path,) = (row["manifest_path"] for row in packages if row["name"] == name)
        source = folder / name
        shutil.copytree(Path(manifest_path).parent, source)
        cargo = ("cargo", "test", "-q", "--locked", "--no-run", "--lib", "--message-format=json")
        told = run(*cargo, "--no-default-features", f"--features={features}", folder=source)
        artifacts = [json.loads(line) for line in told.splitlines()]
        (program,) = (row["executable"] for row in artifacts if row.get("executable"))
        shutil.copy2(program, folder / "tests")

    return build


def nvtop(folder: Path) -> None:
    """Debian's, where this machine's apt knows a mirror; apt checks what it downloads."""
    need("apt-get", "dpkg-deb")
    try:
        apt = DebianSuite(folder, mirrors()[0], "bookworm", "contrib", ("nvtop",))
        apt.unpack("3.0.1-1")
    except NotThere as why:
        raise Unavailable(str(why)) from None
    program = folder / "unpacked" / "usr" / "bin" / "nvtop"
    if "not found" in run("ldd", str(program), folder=folder):
        raise Unavailable("libraries of nvtop: libncursesw6 or libsystemd0")
