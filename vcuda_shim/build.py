"""Build everything native with gcc alone: shims, simulated driver, programs, cffi modules.

    lib/shim/libcuda.so.1, libnvidia-ml.so.1     the shims, put in place of the driver's libraries
    lib/shim/libcuda.so, libnvidia-ml.so         what programs are linked with in a container
    lib/shim-aarch64/…, lib/shim-x86_64/…        the same for a named machine; only when asked for
    lib/driver/libcuda.so.555.58.02, …           the simulated driver, laid out like a real one
    lib/driver-cuda-13/libcuda.so.615.71.09, …   the same, of a newer release
    lib/clock/libsimclock.so                     a clock for programs of a simulation, to preload
    bin/*                                        small CUDA programs to run in pods
    _shim.*.so                                   cffi: the shim's layouts and pure units
    _sim.*.so                                    cffi: the simulated GPUs' shared state
    _arbiter.*.so                                cffi: the arbiter of turns, a thread of the agent

Used by setuptools (`pip install .`, editable too) and, while working, as
`python -m vcuda_shim.build [STEP …]`. Imports nothing of this package: it runs before the package
can be imported.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"
DRIVERS = {"driver": "555.58.02", "driver-cuda-13": "615.71.09"}
"""The folders of the simulated driver, and the release that each calls itself; their exports:
native/sim/table/generate.py."""

CFLAGS = [
    "-std=c11",
    "-O2",
    "-g",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
    "-D_GNU_SOURCE",
]


def run(command: Sequence[str | Path]) -> str:
    """Run a tool; a failure ends the build with the tool's own words."""
    words = [str(word) for word in command]
    finished = subprocess.run(words, check=False, capture_output=True, text=True)
    if finished.returncode != 0:
        raise SystemExit(f"{shlex.join(words)}\n{finished.stderr}")
    return finished.stdout


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "gcc"))


def load(path: Path) -> ModuleType:
    """Import one of the generators, which lie outside any package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources(*folders: Path) -> list[Path]:
    """The C files of these folders and of those in them."""
    return sorted(path for folder in folders for path in folder.rglob("*.c"))


@dataclass(frozen=True, slots=True)
class Target:
    """What the shims are built for: a folder under lib, and the compiler's command."""

    folder: str
    compiler: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shim:
    """One shim: its name, the SONAME it replaces, its own second name, and the driver's."""

    name: str
    soname: str
    own: str
    real: str

    @property
    def linked(self) -> str:
        """What ld looks for: the file of the link library."""
        return self.soname.removesuffix(".1")


SHIMS = (
    Shim("cuda", "libcuda.so.1", "libvcuda-shim.so.1", "libvcuda-real.so.1"),
    Shim("nvml", "libnvidia-ml.so.1", "libvcuda-shim-ml.so.1", "libvcuda-real-ml.so.1"),
)


def shared_library(
    target: Path, files: Iterable[Path], flags: Iterable[str | Path], cc: Sequence[str] = ()
) -> None:
    """Compile and link one library; published by rename, so that users of the old one keep it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    run([*(cc or compiler()), *CFLAGS, "-shared", "-o", temporary, *files, *flags])
    temporary.replace(target)


def includes(*folders: Path) -> list[str]:
    return [f"-I{folder}" for folder in folders]


def machine_built_for() -> str:
    """This one, unless `_PYTHON_HOST_PLATFORM` names another, as for any build of Python's."""
    return sysconfig.get_platform().rpartition("-")[2]


def cross_compiler(machine: str) -> tuple[str, ...]:
    """Of the package `ziglang`, for containers of any age."""
    return (sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17")


ENTRY_FLAGS = {"aarch64": ("-mbranch-protection=none",)}
"""What exports begin with (native/shim/runtime/entry.h) is no landing pad of branches: gcc must not
promise that, as it does by default on some distributions."""


def build_shims(out: Path, work: Path) -> None:
    machine = machine_built_for()
    here = machine == os.uname().machine
    cc = (*compiler(), *ENTRY_FLAGS.get(machine, ())) if here else cross_compiler(machine)
    build_shims_for(Target("shim", cc), out, work)


def build_shims_of(machine: str) -> Callable[[Path, Path], None]:
    """The shims for `aarch64` or `x86_64`."""
    return partial(build_shims_for, Target(f"shim-{machine}", cross_compiler(machine)))


def build_shims_for(target: Target, out: Path, work: Path) -> None:
    """The two shims, and for each the library to link programs with."""
    generated = work / target.folder
    generated.mkdir()
    table = load(NATIVE / "table" / "generate.py")
    table.generate(generated)
    for shim, library in zip(SHIMS, table.LIBRARIES, strict=True):
        functions = known_functions(library.name, table)
        load(NATIVE / "table" / "link.py").generate(generated, library, functions)
        build_shim(shim, target, out, generated)
        build_link_library(shim, target, out, generated)


def known_functions(library: str, table: ModuleType) -> tuple[str, ...]:
    """All functions that the driver library is known to have, hooked or not."""
    census = load(NATIVE / "table" / "census.py")
    rows = table.parse_table(NATIVE / "table" / f"{library}.hooks")
    hooked = [row.symbol for row in rows if row.exported]
    functions: tuple[str, ...] = census.functions(
        hooked, census.parse_census(NATIVE / "table" / f"{library}.census")
    )
    return functions


def build_shim(shim: Shim, target: Target, out: Path, generated: Path) -> None:
    """The shim, which needs the driver's own library under the name `libvcuda-real*`."""
    home = NATIVE / "shim"
    files = sources(home / "core", home / "runtime", home / shim.name)
    shared_library(
        out / "lib" / target.folder / shim.soname,
        [*files, generated / f"{shim.name}_hooks.c"],
        [
            f'-DVCUDA_REAL_SONAME="{shim.real}"',
            *standing_in(shim, target, generated, needed=shim.real, exports=f"{shim.name}.map"),
        ],
        target.compiler,
    )


def build_link_library(shim: Shim, target: Target, out: Path, generated: Path) -> None:
    """What `-lcuda` finds: every function by name, jumping into the shim, which it needs."""
    name = f"{shim.name}_link"
    files = [generated / f"{name}_names.c", generated / f"{name}.S"]
    shared_library(
        out / "lib" / target.folder / shim.linked,
        [*sources(NATIVE / "shim" / "link"), *files],
        [
            f'-DVCUDA_SHIM_SONAME="{shim.own}"',
            *standing_in(shim, target, generated, needed=shim.own, exports=f"{name}.map"),
        ],
        target.compiler,
    )


def standing_in(
    shim: Shim, target: Target, generated: Path, *, needed: str, exports: str
) -> list[str | Path]:
    """Flags for a library that stands in the driver's place and needs the one of that SONAME."""
    stub, empty = generated / needed, generated / "empty.c"
    empty.write_text("")
    shared_library(stub, [empty], [f"-Wl,-soname,{needed}", "-Wno-error"], target.compiler)
    return [
        *includes(NATIVE / "include", NATIVE / "shim", generated),
        f"-Wl,-soname,{shim.soname}",
        f"-Wl,--version-script,{generated / exports}",
        "-Wl,-Bsymbolic,-z,now,-z,relro,-z,defs,--enable-new-dtags,-rpath,$ORIGIN",
        "-Wl,-z,nodelete",  # what a process holds is known to the shim alone
        "-Wl,--no-as-needed",
        stub,
        "-Wl,--as-needed",
        "-ldl",
    ]


def build_driver(out: Path, work: Path) -> None:
    """The simulated driver: libcuda is -Bsymbolic and libnvidia-ml is not, as the real ones."""
    generated = work / "sim"
    generated.mkdir()
    load(NATIVE / "sim" / "table" / "generate.py").generate(generated)
    sim = NATIVE / "sim"
    for name, library, soname, binding in (
        ("cuda", "libcuda.so", "libcuda.so.1", ["-Wl,-Bsymbolic"]),
        ("nvml", "libnvidia-ml.so", "libnvidia-ml.so.1", []),
    ):
        together = generated / f"{name}.o"
        files = [*sources(sim / "core", sim / name), *generated.glob(f"{name}_*.c")]
        folders = includes(NATIVE / "include", sim, generated)
        run([*compiler(), *CFLAGS, *folders, "-r", "-o", together, *files])
        for folder, release in DRIVERS.items():
            exports = f"-Wl,--version-script,{generated / f'{name}-{release}.map'}"
            shared_library(
                out / "lib" / folder / f"{library}.{release}",
                [together],
                [f"-Wl,-soname,{soname}", exports, *binding, "-ldl", "-lm"],
            )


def build_clock(out: Path, _work: Path) -> None:
    """The virtual clock: its page, and the C library's functions that follow it."""
    sim = NATIVE / "sim"
    files = sources(sim / "clock", sim / "preload")
    target = out / "lib" / "clock" / "libsimclock.so"
    shared_library(target, files, [*includes(NATIVE / "include", sim), "-fno-builtin", "-ldl"])


def build_programs(out: Path, _work: Path) -> None:
    """One program per folder of native/programs, named after it; what they share lies beside."""
    (out / "bin").mkdir(parents=True, exist_ok=True)
    flags = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    flags += includes(NATIVE / "programs")
    for folder in sorted(path for path in (NATIVE / "programs").iterdir() if path.is_dir()):
        temporary = out / "bin" / f".{folder.name}.new"
        run([*compiler(), *flags, "-o", temporary, *sources(folder), "-ldl", "-lm"])
        temporary.replace(out / "bin" / folder.name)


def cdef_text(header: Path, folders: Sequence[Path]) -> str:
    """The declarations of a header as cffi reads them: the compiler's own preprocessing."""
    options = ["-E", "-P", "-DVCUDA_CDEF", "-DVCUDA_PLAIN", *includes(*folders)]
    return run([*compiler(), *options, header])


def extension_suffix() -> str:
    """Of this Python's extensions, for the machine that is built for."""
    here = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return here.replace(os.uname().machine, machine_built_for())


COMPILING = threading.Lock()
"""cffi changes the working directory while it compiles; all other paths here are absolute."""


def build_module(out: Path, work: Path, name: str) -> None:
    """The cffi module `_<name>` over native/<name>/core (and clock, and manager, where it has one),
    declared by native/<name>/cffi.h."""
    import cffi

    home = NATIVE / name
    folders = [NATIVE / "include", home]
    ffi: Any = cffi.FFI()
    ffi.cdef(cdef_text(home / "cffi.h", folders))
    ffi.set_source(
        f"vcuda_shim._{name}",
        '#define VCUDA_PLAIN\n#include "cffi.h"\n',
        sources=[str(path) for path in sources(home / "core", home / "clock", home / "manager")],
        include_dirs=[str(path) for path in folders],
        extra_compile_args=[flag for flag in CFLAGS if flag not in ("-Werror", "-Wextra")],
    )
    with COMPILING:
        built = Path(ffi.compile(tmpdir=str(work / f"cffi-{name}"), verbose=False))
    suffix = extension_suffix()
    temporary = out / f"._{name}{suffix}.new"
    shutil.copy2(built, temporary)
    temporary.replace(out / f"_{name}{suffix}")


STEPS: dict[str, Callable[[Path, Path], None]] = {
    "shims": build_shims,
    "driver": build_driver,
    "clock": build_clock,
    "programs": build_programs,
    "shim-module": lambda out, work: build_module(out, work, "shim"),
    "sim-module": lambda out, work: build_module(out, work, "sim"),
    "arbiter-module": lambda out, work: build_module(out, work, "arbiter"),
}


MACHINES = ("aarch64", "x86_64")
SEPARATE: dict[str, Callable[[Path, Path], None]] = {
    f"shims-{machine}": build_shims_of(machine) for machine in MACHINES
}
"""Built only when asked for by name."""


def build(out: Path, only: Sequence[str] = ()) -> None:
    """Build all, or only some steps, into `out`, which is or becomes the package's folder.

    Steps run side by side, one for each processor: no step needs another.
    """
    out = out.resolve()  # before any step changes the working directory

    def step(name: str, work: Path) -> None:
        print(f"building {name}\n", end="", file=sys.stderr)
        (STEPS | SEPARATE)[name](out, work)

    with (
        tempfile.TemporaryDirectory(prefix="vcuda-build-") as work,
        ThreadPoolExecutor(os.cpu_count()) as processors,
    ):
        for done in [processors.submit(step, name, Path(work)) for name in only or STEPS]:
            done.result()


class BuildNative(build_ext):
    """setuptools' build_ext, for the one extension that stands for all native products."""

    def build_extension(self, ext: Any) -> None:
        built = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build(Path(__file__).resolve().parent if self.editable_mode else built)

    def copy_extensions_to_source(self) -> None:
        """An editable install has built all of them in their place."""


if __name__ == "__main__":
    build(Path(__file__).resolve().parent, sys.argv[1:])
