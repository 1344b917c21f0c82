"""Machines with an NVIDIA driver, made of tiny but real ELF files.

`Parts` compiles each kind of file once; `FakeHost` lays them out as a distribution would, with
links and an ld.so.cache.
"""

import os
import platform
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from gpumanager.volume.ldcache import FLAGS, I386, LdEntry, write_ldcache
from gpumanager.volume.shims import Shims

VERSION = "555.58.02"
OLDER = "550.54.14"
LIBS = "/usr/lib/x86_64-linux-gnu"
LIBS32 = "/usr/lib/i386-linux-gnu"
NATIVE = FLAGS[platform.machine()]


@dataclass(frozen=True)
class Parts:
    """Compiles into one folder and remembers what is there."""

    folder: Path

    def library(self, name: str, source: str = "", *flags: str, soname: str | None = None) -> Path:
        """A shared library of this file name; `soname` differs from it unless given as it."""
        path = self.folder / name
        if not path.exists():
            options = ["-shared", "-fPIC", "-nostdlib", *flags]
            self._compile(path, source, [*options, f"-Wl,-soname,{soname}"] if soname else options)
        return path

    def program(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            self._compile(path, "void _start(void) {}", ["-nostdlib", "-static"])
        return path

    def cuda(self, version: str = VERSION) -> Path:
        source = "int cuInit(unsigned flags) { return 100; } int cuNew(void) { return 7; }"
        flags = ("-Wl,-Bsymbolic",)
        return self.library(f"libcuda.so.{version}", source, *flags, soname="libcuda.so.1")

    def ml(self, version: str = VERSION) -> Path:
        source = "int nvmlInit_v2(void) { return 9; } int nvmlNew(void) { return 8; }"
        return self.library(f"libnvidia-ml.so.{version}", source, soname="libnvidia-ml.so.1")

    def shims(self, marker: int = 42) -> Shims:
        """Shims as the real ones are linked: one hook, all else falls through to the driver."""
        return Shims(
            cuda=self._shim("libcuda.so.1", "cuInit", "libvcuda-real.so.1", marker),
            ml=self._shim("libnvidia-ml.so.1", "nvmlInit_v2", "libvcuda-real-ml.so.1", marker),
            cuda_link=self._link("libcuda.so", "libvcuda-shim.so.1", marker),
            ml_link=self._link("libnvidia-ml.so", "libvcuda-shim-ml.so.1", marker),
        )

    def _link(self, name: str, shim: str, marker: int) -> Path:
        """It has nothing of its own: all falls through to the shim that it needs."""
        stub = self.library(shim, soname=shim)
        flags = ["-Wl,--no-as-needed,--enable-new-dtags,-rpath,$ORIGIN", str(stub)]
        source = f"int vcuda_link_{marker};"
        return self.library(f"{marker}-{name}", source, *flags, soname=f"{name}.1")

    def _shim(self, soname: str, hook: str, real: str, marker: int) -> Path:
        stub = self.library(real, soname=real)
        flags = ["-Wl,--no-as-needed,--enable-new-dtags,-rpath,$ORIGIN"]
        source = f"int {hook}(void) {{ return {marker}; }}"
        return self.library(f"{marker}-{soname}", source, *flags, str(stub), soname=soname)

    def _compile(self, path: Path, source: str, flags: list[str]) -> None:
        compiler = shlex.split(os.environ.get("CC", "gcc"))
        command = [*compiler, "-x", "c", "-", "-x", "none", "-o", str(path), *flags]
        subprocess.run(command, input=source, text=True, check=True, timeout=300)


@dataclass
class FakeHost:
    """A root directory; `libraries` and the programs put there are what its driver consists of."""

    root: Path
    parts: Parts
    entries: list[LdEntry] = field(default_factory=list)

    def install(self, library: Path, names: tuple[str, ...] = (), where: str = LIBS) -> Path:
        """Put a library there with links of these names, each of them in the cache."""
        target = self.path(where) / library.name
        target.write_bytes(library.read_bytes())
        for name in names or (library.name,):
            if name != library.name:
                (target.parent / name).symlink_to(library.name)
            flags = I386 if where == LIBS32 else NATIVE
            self.entries.append(LdEntry(name, f"{where}/{name}", flags))
        self.write_cache()
        return target

    def install_driver(self, version: str = VERSION) -> None:
        self.install(self.parts.cuda(version), ("libcuda.so.1", "libcuda.so"))
        self.install(self.parts.ml(version), ("libnvidia-ml.so.1",))
        self.put_program("nvidia-smi")

    def put_program(self, name: str, content: bytes | None = None) -> Path:
        path = self.path("/usr/bin") / name
        path.write_bytes(self.parts.program(name).read_bytes() if content is None else content)
        path.chmod(0o755)
        return path

    def path(self, absolute: str) -> Path:
        """A directory of this machine, made if need be."""
        path = self.root / absolute.lstrip("/")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write_cache(self) -> None:
        (self.path("/etc") / "ld.so.cache").write_bytes(write_ldcache(self.entries))
