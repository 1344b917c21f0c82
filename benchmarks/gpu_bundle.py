"""Put the check on a real GPU into one folder: `make gpu-bundle`.

    python benchmarks/gpu_bundle.py [--versions 3.11,3.12,3.13] [--no-test-build]
                                    [--runtime LIBRARY] [FOLDER]

The folder runs on a machine with a driver and a Python of those versions, and needs neither a
network nor a compiler there:

    gpu-check.sh            runs the named stages, or all
    benchmarks/             the check
    gpumanager/, vcuda_shim/    the package, with the shims and its modules in C
    programs/               gpu_facts, launches, runtime and tenants, for x86-64 and glibc 2.17
    site/                   packages: nvidia-ml-py, and cffi's part that runs
    tests/clients/inside/   plugins of pytest, for numba-cuda's tests
    known-functions.json    what native/table knows of the driver's functions

What is built is for x86-64, whatever this machine is, but for the shims and the modules, which are
this checkout's.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import elftools

from vcuda_shim import build

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "build" / "gpu-bundle"
VERSIONS: Final = ("3.11", "3.12", "3.13")
TREES: Final = ("gpumanager", "vcuda_shim", "benchmarks/gpu_check")
FILES: Final = (
    *("benchmarks/check_gpu.py", "LICENSE"),
    *(
        f"tests/clients/inside/{name}"  # for numba-cuda's tests
        for name in ("each_end.py", "error_names.py", "numba_fixture.py", "pytest.ini")
    ),
)
SKIPPED: Final = shutil.ignore_patterns("__pycache__", "*.so", "lib", "bin", "*.pyi")
MODULES: Final = ("_shim", "_arbiter")
TEST_BUILD: Final = "shim-unhooked"
UNHOOKED: Final = "VCUDA_UNHOOKED"
UNPROTOTYPED: Final = "-Wno-deprecated-non-prototype"
PROGRAM_FLAGS: Final = ("-std=gnu11", "-O2", "-s", "-Wall", UNPROTOTYPED, "-D_GNU_SOURCE")
STATIC_RUNTIME: Final = "nvidia-cuda-runtime-cu12", "libcudart_static.a"
"""NVIDIA's package, and its file that programs have linked in."""


def make(folder: Path, versions: Sequence[str], *, test_build: bool, runtime: Path | None) -> None:
    """runtime: a CUDA runtime, to be linked into a program of the check; None: no such program."""
    shutil.rmtree(folder, ignore_errors=True)
    for tree in TREES:
        shutil.copytree(ROOT / tree, folder / tree, ignore=SKIPPED)
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    shutil.copy2(ROOT / "benchmarks/gpu_check/gpu-check.sh", folder)
    shutil.copytree(ROOT / "vcuda_shim/lib/shim", folder / "vcuda_shim/lib/shim")
    for name in MODULES:
        (module,) = (ROOT / "vcuda_shim").glob(f"{name}.cpython-*.so")
        # cffi builds with the limited API: one file for all versions of Python.
        shutil.copy2(module, folder / "vcuda_shim" / f"{name}.abi3.so")
    add_packages(folder / "site", versions)
    add_programs(folder / "programs", runtime)
    add_known_functions(folder / "known-functions.json")
    if test_build:
        add_test_build(folder / "vcuda_shim")


def add_packages(site: Path, versions: Sequence[str]) -> None:
    """nvidia-ml-py is one module; of cffi a built module needs _cffi_backend alone; pyelftools is
    Python all through."""
    site.mkdir()
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(elftools.__file__).parent, site / "elftools", ignore=compiled)
    for package, wanted in (("nvidia-ml-py", "pynvml.py"), ("cffi", "_cffi_backend.")):
        for file in metadata.files(package) or ():
            if file.name.startswith(wanted) and len(file.parts) == 1:
                shutil.copy2(str(file.locate()), site)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in versions:
        if version != ours:
            unpack_cffi(site, version)


def unpack_cffi(site: Path, version: str) -> None:
    with tempfile.TemporaryDirectory() as downloaded:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", downloaded]
        command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", version]
        command += ["--platform", "manylinux2014_x86_64", f"cffi=={metadata.version('cffi')}"]
        subprocess.run(command, check=True)
        (wheel,) = Path(downloaded).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("_cffi_backend."):
                    archive.extract(name, site)


def add_programs(folder: Path, runtime: Path | None) -> None:
    folder.mkdir()
    sources = ROOT / "benchmarks/gpu_check/programs"
    for source in sorted(sources.iterdir()):  # a file, or a folder of them
        compile_program(folder / source.stem, *(sorted(source.glob("*.c")) or [source]))
    if runtime is not None:
        linked = (sources / "runtime.c", "-DSTATIC_RUNTIME", runtime, "-lpthread", "-lrt")
        compile_program(folder / "runtime-static", *linked)


def compile_program(program: Path, *words: str | Path) -> None:
    cc = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"]
    build.run([*cc, *PROGRAM_FLAGS, "-o", program, *words, "-ldl", "-lm", "-lpthread"])


def static_runtime() -> Path | None:
    """NVIDIA's, of this Python's packages; None where there is none, or one for another machine."""
    package, name = STATIC_RUNTIME
    try:
        files = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.name == name]
    return found[0] if found and os.uname().machine == "x86_64" else None


def add_known_functions(path: Path) -> None:
    table = build.load(build.NATIVE / "table" / "generate.py")
    rows = table.parse_table(build.NATIVE / "table" / "cuda.hooks")
    known = {
        "libcuda": build.known_functions("cuda", table),
        "libnvidia-ml": build.known_functions("nvml", table),
        "hooks": {row.symbol: row.kind for row in rows if row.exported},
    }
    path.write_text(json.dumps(known))


def add_test_build(package: Path) -> None:
    """The shims that can leave hooks out: native/shim/cuda/entry.c."""
    define = f'-DVCUDA_UNHOOKED="{UNHOOKED}"'
    target = build.Target(TEST_BUILD, (*build.compiler(), define))
    with tempfile.TemporaryDirectory() as work:
        build.build_shims_for(target, package, Path(work))


def listing(folder: Path) -> list[str]:
    """Each part's size, and the whole."""
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    parts: dict[str, int] = {}
    for path, size in sizes.items():
        inside = path.relative_to(folder).parts
        part = "/".join(inside[:2]) if len(inside) > 2 else inside[0]
        parts[part] = parts.get(part, 0) + size
    whole = sum(sizes.values())
    return [
        *(f"{size >> 10:8} KiB  {part}" for part, size in sorted(parts.items())),
        f"{whole >> 10:8} KiB  in {len(sizes)} files",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpu-bundle", description="Bundle the GPU check.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--versions", default=",".join(VERSIONS), help="of Python, with commas")
    parser.add_argument(
        "--no-test-build", action="store_true", help="without the shims that can leave hooks out"
    )
    parser.add_argument(
        "--runtime", type=Path, help="a static CUDA runtime to link in, instead of NVIDIA's"
    )
    options = parser.parse_args()
    make(
        options.folder,
        options.versions.split(","),
        test_build=not options.no_test_build,
        runtime=options.runtime or static_runtime(),
    )
    print("\n".join(listing(options.folder)))


if __name__ == "__main__":
    main()
