"""`gpumanager doctor --bundle FILE.tar.gz`: all that somebody needs to find out what is wrong.

What is in it is one list: the doctor's report, the inputs of its checks, and texts of the node. As
for the checks, each source is read in a thread of its own and given up after some seconds: a driver
that hangs costs its own files, not the bundle. Nothing is changed. Progress goes to standard error.
"""

import asyncio
import importlib.metadata
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import click

from gpumanager import __version__
from gpumanager.cli.logs import FILE
from gpumanager.cli.node_agents import fetch
from gpumanager.cli.support.claim_inputs import API, agent_url
from gpumanager.doctor.bundle import MOST_BYTES, MOST_OF_ALL, Piece, piece, write
from gpumanager.doctor.question import DoctorQuestion, Unseen
from gpumanager.doctor.redact import checkpoint_without_answers
from gpumanager.errors import GpuManagerError
from gpumanager.grants.journal_file import FILE_NAME
from gpumanager.kube.access import find_access
from gpumanager.kube.client import KubeClient
from gpumanager.names import CLAIM_DRIVER, DEVICE_PLUGINS, KUBELET_CHECKPOINT
from gpumanager.settings import AgentSettings
from gpumanager.volume.driver import find_driver, version
from gpumanager.volume.elf import read_elf
from gpumanager.volume.host import read_host

SOURCES_SECONDS: Final = 15.0
"""For all sources together: they are read at the same time."""
COMMAND_SECONDS: Final = 10.0
LOGS: Final = 4
"""How many files of the container's log: the newest."""
CDI_FILES: Final = 200
LISTED: Final = 5000
"""Names of a directory listing."""
LARGEST_FILE: Final = 64 << 20
"""Bytes of a file that is read whole."""
DRIVER_WORDS: Final = ("nvidia", "cuda", "nvcuvid", "nvoptix")
STDOUT: Final = Path("-")

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu/nvidia-smi.txt": ("nvidia-smi",),
    "gpu/nvidia-smi-topo.txt": ("nvidia-smi", "topo", "-m"),
    "gpu/nvidia-smi-q.txt": ("nvidia-smi", "-q"),
}
PAGES: Final = {
    "agent/metrics.txt": "/metrics",
    "agent/node.json": "/api/node",
    "agent/usage.json": "/usage",
    "agent/graph.json": "/graph",
    "agent/version.json": "/version",
    "agent/readyz.txt": "/readyz",
}
FILES: Final = {
    "system/mounts.txt": "/proc/self/mountinfo",
    "system/cgroup.txt": "/proc/self/cgroup",
    "system/limits.txt": "/proc/self/limits",
    "system/os-release.txt": "/etc/os-release",
    "system/cgroup-controllers.txt": "/sys/fs/cgroup/cgroup.controllers",
    "gpu/driver-version.txt": "/proc/driver/nvidia/version",
    "gpu/driver-parameters.txt": "/proc/driver/nvidia/params",
}
SYSCTLS: Final = (
    "fs/file-max", "fs/file-nr", "fs/inotify/max_user_instances", "fs/inotify/max_user_watches",
    "fs/nr_open", "kernel/apparmor_restrict_unprivileged_userns", "kernel/modules_disabled",
    "kernel/ostype", "kernel/osrelease", "kernel/pid_max", "kernel/threads-max",
    "kernel/unprivileged_userns_clone", "kernel/version", "kernel/yama/ptrace_scope",
    "net/core/somaxconn", "user/max_user_namespaces", "vm/max_map_count", "vm/overcommit_memory",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the bundle. read: its text, before secrets are taken out; called in a thread,
    raises OSError, ValueError, GpuManagerError."""

    name: str
    origin: str
    read: Callable[[], str]


def sources(settings: AgentSettings, log_directory: Path | None) -> Iterator[Source]:
    """Yield texts of the node, the most useful first."""
    yield Source("versions.json", "this program", versions)
    given = json.dumps(asdict(settings), indent=2, default=str)
    yield Source("settings.json", "the flags given to the doctor", lambda: given)
    journal = settings.checkpoint_path / FILE_NAME
    checkpoint = settings.device_plugin_path / KUBELET_CHECKPOINT
    yield Source(
        "journal.txt",
        str(journal),  # without the room that it has for more
        lambda: whole(journal).rstrip(b"\0\n ").decode(errors="replace"),
    )
    yield Source(
        "kubelet-checkpoint.json",
        str(checkpoint),
        lambda: checkpoint_without_answers(whole(checkpoint)),
    )
    directories = {
        "allocations": settings.virtual_manager_path,
        "device-plugins": settings.device_plugin_path,
        "checkpoint": settings.checkpoint_path,
    }
    files = {name: Path(path) for name, path in FILES.items()}
    if settings.interface != DEVICE_PLUGINS:
        # Of the API server, and what the kubelet and the container runtime read.
        ours = {"fieldSelector": f"spec.driver={CLAIM_DRIVER}"}
        for name in ("resourceslices", "resourceclaims", "deviceclasses"):
            path, query = f"{API}/{name}", ours if name == "resourceslices" else {}
            read = partial(objects, settings.kubeconfig, path, query)
            yield Source(f"claims/{name}.json", path, read)
        cdi = sorted(settings.cdi_path.glob(f"{CLAIM_DRIVER}*"))[:CDI_FILES]
        files |= {f"claims/cdi/{file.name}": file for file in cdi}
        directories |= {
            "plugins": settings.plugins_path,
            "plugins-registry": settings.plugins_registry_path,
            "cdi": settings.cdi_path,
        }
    if log_directory is not None:
        files[f"logs/{FILE}"] = log_directory / FILE
    for name, directory in directories.items():
        yield Source(f"listings/{name}.txt", str(directory), partial(listing, directory))
    url, root, devices = agent_url(settings), settings.driver_root, settings.device_directory
    for name, path in PAGES.items():
        yield Source(name, url + path, partial(_page, url, path))
    yield Source("gpu/driver-files.txt", str(root), partial(driver_files, root))
    nodes = partial(listing, devices, "nvidia*")
    yield Source("gpu/device-nodes.txt", f"{devices}/nvidia*", nodes)
    yield Source("gpu/kernel-messages.txt", "/dev/kmsg", kernel_messages)
    for name, words in COMMANDS.items():
        yield Source(name, " ".join(words), partial(output, words))
    for name, file in files.items():
        yield Source(name, str(file), partial(end_of, file))
    yield Source("system/sysctl.txt", "/proc/sys", sysctls)
    pods = root / "var/log/pods"
    pattern = f"{pods}/*gpu-manager*/*/*.log"
    yield Source("logs/containers.txt", pattern, partial(container_logs, pods))


def make_bundle(to: Path, wanted: Iterable[Source]) -> None:
    """Write it, and print what is in it. Raises GpuManagerError where it cannot be written."""
    made, pieces = time.time(), [*collect(wanted, _print)]
    if to == STDOUT:
        write(pieces, __version__, made, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        # Whole or not at all, and for its owner's eyes only.
        try:
            with NamedTemporaryFile(dir=to.parent, prefix=".bundle-", delete=False) as file:
                try:
                    write(pieces, __version__, made, file.file)
                    file.flush()
                    Path(file.name).rename(to)
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            cause = error.strerror or os.strerror(error.errno or 0)
            raise GpuManagerError(f"{to}: cannot write the bundle: {cause}") from error
    there = [one for one in pieces if not one.cause]
    redacted = sum(one.redacted for one in there)
    _print(
        f"{to}: {len(there)} files, {sum(len(one.text) for one in there):,} bytes before packing; "
        f"{len(pieces) - len(there)} could not be had, manifest.json says why; "
        f"secrets taken out: {redacted}. Read it before you give it away."
    )


def collect(
    wanted: Iterable[Source], say: Callable[[str], None], seconds: float = SOURCES_SECONDS
) -> Iterator[Piece]:
    """Yield pieces in the sources' order, each as soon as it is read, as long as they fit."""
    left = MOST_OF_ALL
    for source, question in [(one, DoctorQuestion(one.read, seconds)) for one in wanted]:
        answer = question.answer()
        if isinstance(answer, Unseen):
            found = Piece(source.name, source.origin, cause=answer.cause)
        else:
            found = piece(source.name, source.origin, answer, left)
        left -= len(found.text)
        say(f"{found.name}: {found.cause or f'{len(found.text):,} bytes'}")
        yield found


def _print(text: str) -> None:
    click.echo("".join(one if one.isprintable() else "?" for one in text), err=True)


def objects(kubeconfig: Path | None, path: str, query: Mapping[str, str]) -> str:
    """List those objects of the API server that name our driver; raises GpuManagerError."""
    found: list[str] = []

    def take(item: Any) -> None:
        item["metadata"].pop("managedFields", None)
        text = json.dumps(item, indent=1)
        if CLAIM_DRIVER in text:
            found.append(text)

    async def list_all() -> None:
        async with KubeClient(find_access(kubeconfig), agent="gpumanager-doctor") as client:
            await client.list(path, take, **query)

    asyncio.run(list_all())
    return f"[{','.join(found)}]"


def _page(url: str, path: str) -> str:
    return fetch(url, path).decode(errors="replace")


def versions() -> str:
    found = {
        "gpumanager": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": {one.name: one.version for one in importlib.metadata.distributions()},
    }
    return json.dumps(found, indent=2)


def end_of(path: Path) -> str:
    """Return at most what a bundle takes of one file; only of regular files."""
    with path.open("rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("no regular file")
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - MOST_BYTES))
        return file.read(MOST_BYTES + 1).decode(errors="replace")


def whole(path: Path) -> bytes:
    """Read a file. Raises ValueError for one that is larger than any of its kind."""
    with path.open("rb") as file:
        text = file.read(LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE} bytes")
    return text


def listing(directory: Path, *patterns: str) -> str:
    """List modes, owners, sizes or device numbers, and names; by default two levels."""
    directory.stat()  # raises OSError where it is not there
    found = (path for one in patterns or ("*", "*/*") for path in directory.glob(one))
    rows = []
    for path in islice(sorted(found), LISTED):
        status = path.lstat()
        target = f" -> {path.readlink()}" if path.is_symlink() else ""
        number = status.st_rdev
        size = f"{os.major(number)}:{os.minor(number)}" if number else str(status.st_size)
        name = f"{path.relative_to(directory)}{target}"
        rows.append(f"{stat.filemode(status.st_mode)} {status.st_uid:5} {size:>10} {name}")
    return "\n".join(rows) + "\n"


def driver_files(root: Path) -> str:
    """List the driver's libraries as the host's linker knows them, each with its soname."""
    host = read_host(root)
    rows = [f"driver {find_driver(host).version}", ""]
    for entry in host.cache:
        if not any(word in entry.name for word in DRIVER_WORDS):
            continue
        path = host.resolve(entry.path)
        elf = read_elf(path) if path else None
        soname = f"soname {elf.soname}" if elf else "no ELF file"
        bits = f"{entry.bits or '?'} bit"
        known = f"version {version(path) or path.name.partition('.so.')[2]}" if path else ""
        rows.append(f"{entry.name}  {path or 'missing'}  {soname}  {bits}  {known}")
    return "\n".join(rows) + "\n"


def kernel_messages() -> str:
    """Return those of the driver."""
    rows = []
    descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            rows.append(os.read(descriptor, 8192).decode(errors="replace"))
    except (BlockingIOError, BrokenPipeError):
        pass
    finally:
        os.close(descriptor)
    told = [row for row in rows if any(word in row for word in ("NVRM", "Xid", "nvidia"))]
    return "".join(told) or "nothing of the driver\n"


def output(words: tuple[str, ...]) -> str:
    """Return what a program prints; raises ValueError where it is not there or fails."""
    if shutil.which(words[0]) is None:
        raise ValueError(f"there is no {words[0]} here")
    try:
        done = subprocess.run(
            words, capture_output=True, timeout=COMMAND_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"no answer within {COMMAND_SECONDS:g} s") from error
    said = done.stdout.decode(errors="replace")
    if done.returncode:
        words_of_it = done.stderr.decode(errors="replace").strip() or said.strip()
        raise ValueError(f"exit status {done.returncode}: {words_of_it[:300]}")
    return said


def sysctls() -> str:
    rows = []
    for name in SYSCTLS:
        try:
            value = Path("/proc/sys", name).read_text().strip()
        except OSError as error:
            value = f"({error.strerror})"
        rows.append(f"{name.replace('/', '.')} = {value}")
    return "\n".join(rows) + "\n"


def container_logs(pods: Path) -> str:
    """Return logs of the agent's containers and the extender's, as the runtime keeps them."""
    found = sorted(pods.glob("*gpu-manager*/*/*.log"), key=os.path.getmtime)[-LOGS:]
    if not found:
        raise ValueError("there are none here")
    share = MOST_BYTES // len(found)
    return "\n".join(f"==> {path} <==\n{end_of(path)[-share:]}" for path in found)
