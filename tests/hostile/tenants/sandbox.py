"""A sandbox inside of a container, as bubblewrap and apptainer make one, and a program in it.

    sandbox.py HOW...    `bound`: /etc/vcuda is bound into it. `clean`: with an empty environment.
                         `elsewhere`: the driver's libraries lie in another directory.
                         `pids`: with a pid namespace of its own

A new root of its own: what the container's has, but /etc, of which it gets what it is given.
"""

import ctypes
import os
import sys
import tempfile
from pathlib import Path

import tenant

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MIB = 1 << 20
VCUDA = Path("/etc/vcuda")
DRIVER, ELSEWHERE = Path("/usr/local/nvidia"), Path("/.libs")
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: Path | str, target: Path, kind: str = "", flags: int = 0) -> None:
    words = (str(source).encode(), str(target).encode(), kind.encode() or None)
    if LIBC.mount(*words, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def show(path: Path, root: Path, name: Path | None = None) -> None:
    """The container's `path`, and what is mounted in it, at the same place of the sandbox."""
    target = root / (name or path).relative_to("/")
    if path.is_symlink():
        target.symlink_to(path.readlink())
    elif path.is_dir():
        target.mkdir(parents=True)
        mount(path, target, flags=MS_BIND | MS_REC)


def enter(how: set[str]) -> None:
    """Become a process in the sandbox."""
    if LIBC.unshare(CLONE_NEWNS | (CLONE_NEWPID if "pids" in how else 0)) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)
    if "pids" in how and (child := os.fork()) != 0:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    root = Path(tempfile.mkdtemp())
    mount("tmpfs", root, "tmpfs")
    for path in Path("/").iterdir():
        if path.name not in ("etc", "proc"):
            show(path, root)
    (root / "proc").mkdir()
    mount("proc", root / "proc", "proc")
    (root / "etc").mkdir()
    if "bound" in how:
        show(VCUDA, root)
    if "elsewhere" in how:
        show(DRIVER, root, ELSEWHERE)
        mount("tmpfs", root / DRIVER.relative_to("/"), "tmpfs")
    os.chroot(root)
    os.chdir("/")


def libraries(how: set[str]) -> str:
    return str((ELSEWHERE if "elsewhere" in how else DRIVER) / "lib64")


def become_program(how: set[str]) -> None:
    """The loader reads LD_LIBRARY_PATH at a program's start only."""
    kept = {} if "clean" in how else dict(os.environ)
    environment = {**kept, "LD_LIBRARY_PATH": libraries(how)}
    os.execve(sys.executable, (sys.executable, __file__, "in"), environment)


def run() -> None:
    driver, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
    started = driver.cuInit(0)
    context, address, held = ctypes.c_void_p(), ctypes.c_uint64(), 0
    if started == 0 and driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0:
        while driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 * MIB)) == 0:
            held += 64
    device, figures = ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    told = nvml.nvmlDeviceGetMemoryInfo(device, figures)
    tenant.say("cuInit", started, "holds", held, "nvml", told, "total", figures[0] // MIB)


if __name__ == "__main__":
    if sys.argv[1:] == ["in"]:
        run()
    else:
        enter(set(sys.argv[1:]))
        become_program(set(sys.argv[1:]))
