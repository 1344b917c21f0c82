"""The inputs of the doctor's checks: all that an agent with these settings would use.

Nothing is changed. Each input is read in a thread of its own and given up after some seconds: what
does not answer is unseen, and that is a finding.
"""

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from gpumanager.agent.host import SHIMS, container_runtime, use_driver_root
from gpumanager.cli.support.claim_inputs import observe_claims, registrations
from gpumanager.doctor.question import DoctorQuestion, Unseen
from gpumanager.doctor.values import (
    Directory,
    InstalledDriver,
    ListeningSocket,
    ObservedNode,
    Trouble,
)
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.device_attributes import loaded_driver
from gpumanager.gpu.health.events import NvmlHealth
from gpumanager.gpu.health.state import PENDING_RESET, GpuHealth, diagnosis
from gpumanager.gpu.kernel_modules import HMM, kernel_file
from gpumanager.gpu.nvml import SPLIT, NvmlError, discover_here, driver
from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.grpc_wire import sockets_like
from gpumanager.isolation.edits import CONTROL
from gpumanager.kube.access import NoAccess, find_access, node_name
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, Object
from gpumanager.kubelet.checkpoint import read_checkpoint
from gpumanager.kubelet.pod_resources import probe
from gpumanager.kubelet.pods import KubeletPods
from gpumanager.names import (
    CLAIMS,
    DEVICE_PLUGINS,
    KUBELET_CHECKPOINT,
    KUBELET_SOCKET,
    VCORE,
    VCORE_SOCKET,
    VMEMORY,
    VMEMORY_SOCKET,
)
from gpumanager.node_status.manager_watch import NOT_FOUND, SLICES
from gpumanager.node_status.other_managers import (
    foreign_resources,
    other_managers,
    read_signs,
    read_slice,
)
from gpumanager.runtime.cdi_support import obstacle_of
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.nvidia_runtime import nvidia_defaults, nvidia_devices
from gpumanager.settings import AgentSettings
from gpumanager.units import Bytes
from gpumanager.volume.config import SHIPPED, read_config
from gpumanager.volume.driver import find_driver
from gpumanager.volume.find import find_libraries
from gpumanager.volume.host import read_host
from gpumanager.volume.manager import OPENCL

KUBELET_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 1.0
TAKES_BOOKS_BACK: Final = 1 << 2 | 1 << 19
"""CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE."""

FIRST_PID_NAMESPACE: Final = 0xEFFFFFFC
"""The inode that the kernel gives the pid namespace it boots with."""

UNLIMITED: Final = {"libnvidia-glcore.so": "OpenGL and Vulkan", "libnvidia-eglcore.so": "EGL"}
"""What a share has past its limits, by the library that does the work."""
UNLIMITED_OPENCL: Final = {OPENCL: "OpenCL"}

SHARED_MEMORY: Final = "NVML has no memory figure of it: its memory is the machine's, by MemTotal"
SHARED_MEMORY_ADVICE: Final = (
    "set --reserved-memory to what the machine and its pods need themselves, and give pods a "
    "memory limit: memory of malloc, which kernels reach too, counts there and not here"
)

T = TypeVar("T")


async def observe_node(settings: AgentSettings) -> ObservedNode:
    """Return the node. Raises InputError for settings with which no agent would start either."""
    root, plugins = settings.driver_root, settings.device_plugin_path
    use_driver_root(root)
    kubelet = KubeletPods(
        settings.kubelet_endpoint, token=settings.kubelet_token, deadline=KUBELET_SECONDS
    )
    runtime, claimed = container_runtime(settings), settings.interface != DEVICE_PLUGINS
    asks: dict[str, Callable[[], Any]] = {
        "installed": lambda: _installed(root),
        "loaded": loaded_driver,
        "topology": lambda: discover_here(root / "sys", settings.reserved_memory),
        "troubles": lambda: tuple(_troubles(root / "sys")),
        "unlimited": lambda: tuple(_unlimited(settings)),
        "hmm": lambda: _reaches_pageable(kernel_file(root, HMM)),
        "held": lambda: _held(plugins / KUBELET_CHECKPOINT),
        "directories": lambda: tuple(_directories(settings)),
        "grants": lambda: _grants(settings.checkpoint_path / FILE_NAME),
        "cgroups": CgroupFiles.here,
        "driver": lambda: CgroupFiles.here().driver(),
        "nvidia_defaults": lambda: nvidia_defaults(root),
        "nvidia_devices": lambda: nvidia_devices(root),
    }
    questions = {name: DoctorQuestion(ask) for name, ask in asks.items()}
    pods = await await_answer(kubelet.pods())
    version = await await_answer(kubelet.version())
    pod_resources = await await_answer(_pod_resources(settings.pod_resources_socket))
    who = await await_answer(runtime.version())
    cdi: str | Unseen = who if isinstance(who, Unseen) else ""
    if claimed and not isinstance(who, Unseen):
        cdi = await obstacle_of(runtime, settings.cdi_path)
    await runtime.close()
    seen: dict[str, Any] = {
        name: await asyncio.to_thread(one.answer) for name, one in questions.items()
    }
    installed, topology, grants = seen["installed"], seen["topology"], seen.pop("grants")
    for name, empty in (("driver", None), ("nvidia_defaults", ()), ("nvidia_devices", ())):
        if isinstance(seen[name], Unseen):
            seen[name] = empty
    cgroups, driver = seen.pop("cgroups"), seen.pop("driver")
    hierarchy = None if isinstance(cgroups, Unseen) else cgroups.version
    gpus = () if isinstance(topology, Unseen) else topology.gpus
    nodes = [
        settings.device_directory / name
        for name in (*CONTROL, *(f"nvidia{gpu.minor}" for gpu in gpus))
    ]
    shims = (SHIMS.cuda, SHIMS.ml, SHIMS.cuda_link, SHIMS.ml_link)
    own = [
        _best([path, *sockets_like(path)])
        for path in (plugins / VCORE_SOCKET, plugins / VMEMORY_SOCKET)
    ]
    registered, claims = _best(registrations(settings)), None
    sockets = {DEVICE_PLUGINS: own, CLAIMS: [registered]}.get(
        settings.interface, [*own, registered]
    )
    if claimed:
        number = "" if isinstance(installed, Unseen) else installed.version
        claims = await observe_claims(
            settings,
            topology,
            driver=number,
            socket=registered,
            grants=grants or (),
            cdi_obstacle=cdi,
        )
    return ObservedNode(
        **seen,
        granted=grants if grants is None or isinstance(grants, Unseen) else len(grants),
        missing_nodes=tuple(node for node in nodes if not _exists(node)),
        missing_shims=tuple(path for path in shims if not path.is_file()),
        kubelet_socket=plugins / KUBELET_SOCKET,
        listener=_listener(plugins / KUBELET_SOCKET),
        sockets=tuple(sockets),
        version=version,
        pods=pods if isinstance(pods, Unseen) else len(pods),
        pod_resources=pod_resources,
        runtime=who if isinstance(who, Unseen) else str(who),
        cgroups=hierarchy and hierarchy.value,
        driver=driver and driver.value,
        root=os.geteuid() == 0,
        sees_all_processes=_in_first_pid_namespace(),
        takes_books_back=_capabilities() & TAKES_BOOKS_BACK == TAKES_BOOKS_BACK,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        managers=await find_managers(settings, topology),
        beside=settings.allow_other_managers,
        claims=claims,
    )


def _installed(root: Path) -> InstalledDriver:
    found = find_driver(read_host(root))
    return InstalledDriver(found.version, found.cuda.path, found.warnings)


def _troubles(sysfs: Path) -> Iterator[Trouble]:
    """Yield what an agent would find that probes each GPU for the first time."""
    with driver(sysfs) as nvml, NvmlHealth() as health:
        for index in range(nvml.count()):
            try:
                gpu, own = nvml.gpu(index).uuid, nvml.has_own_memory(index)
            except NvmlError as error:
                yield Trouble(f"GPU {index}", str(error), mild=SPLIT in str(error))
                continue
            if not own:
                yield Trouble(gpu, SHARED_MEMORY, mild=True, advice=SHARED_MEMORY_ADVICE)
            finding = health.probe(gpu)
            if cause := diagnosis(GpuHealth(gpu), finding):
                yield Trouble(gpu, cause.text)
            elif finding.remap_pending:
                yield Trouble(gpu, PENDING_RESET, mild=True)


def _reaches_pageable(disabled: Path) -> bool:
    try:
        return disabled.read_text().strip() != "Y"
    except OSError as error:
        raise OSError(f"{disabled}: {error.strerror}") from error


def _unlimited(settings: AgentSettings) -> Iterator[str]:
    config, host = read_config(settings.volume_config or SHIPPED), read_host(settings.driver_root)
    find_driver(host)
    found = find_libraries(host, config.shared.libraries).components
    names = UNLIMITED | (UNLIMITED_OPENCL if settings.opencl_in_shares else {})
    for prefix, name in names.items():
        if any(one.name.startswith(prefix) for one in found):
            yield name


def _held(checkpoint: Path) -> str | None:
    if not _exists(checkpoint):
        return None
    holders = read_checkpoint(checkpoint)
    amounts = (
        f"{sum(len(one.ids) for one in holders if one.resource == name)} of {name}"
        for name in (VCORE, VMEMORY)
    )
    return ", ".join(amounts)


def _grants(journal: Path) -> tuple[Grant, ...] | None:
    return JournalFile(journal).load().live() if _exists(journal) else None


async def _pod_resources(path: Path) -> str:
    state = _listener(path)
    if state is not ListeningSocket.LISTENS:
        raise GpuManagerError(f"{path}: {state.value}")
    return (await probe(path)).value


def _capabilities() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("CapEff:")).split()[1], 16)


def _in_first_pid_namespace() -> bool:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == FIRST_PID_NAMESPACE
    except OSError:
        return False


def _best(paths: Sequence[Path]) -> ListeningSocket:
    """Return the best state of any instance's socket."""
    found = (_listener(path) for path in paths)
    return max(found, key=list(ListeningSocket).index, default=ListeningSocket.ABSENT)


def _listener(path: Path) -> ListeningSocket:
    """Return the state of a socket, by connecting and hanging up."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(CONNECT_SECONDS)
        try:
            caller.connect(str(path))
        except FileNotFoundError:
            return ListeningSocket.ABSENT
        except PermissionError:
            return ListeningSocket.DENIED
        except OSError:
            return ListeningSocket.DEAD
    return ListeningSocket.LISTENS


def _directories(settings: AgentSettings) -> Iterator[Directory]:
    yield _directory("allocations", settings.virtual_manager_path)
    yield _directory("journal directory", settings.checkpoint_path)
    config = read_config(settings.volume_config or SHIPPED)
    bases = (config.shared.base, config.whole.base)
    for base in dict.fromkeys(bases if settings.volume_base is None else (settings.volume_base,)):
        yield _directory("driver volumes", base, for_code=True)


def _directory(purpose: str, path: Path, *, for_code: bool = False) -> Directory:
    """Return a directory or, if it does not exist yet, the one in which it would be made."""
    there = next(one for one in (path, *path.absolute().parents) if _exists(one))
    try:
        system = os.statvfs(there)
    except OSError as error:
        return Directory(purpose, path, error.strerror or str(error), Bytes(0), executable=True)
    obstacle = None
    if not there.is_dir():
        obstacle = f"{there} is no directory"
    elif not os.access(there, os.W_OK | os.X_OK):
        obstacle = f"{there} may not be written"
    return Directory(
        purpose,
        path,
        obstacle=obstacle,
        free=Bytes(system.f_bavail * system.f_frsize),
        executable=not (for_code and system.f_flag & os.ST_NOEXEC),
    )


def _exists(path: Path) -> bool:
    """Return whether a path exists; False also for what may not be read."""
    try:
        path.stat()
    except OSError:
        return False
    return True


async def find_managers(
    settings: AgentSettings, topology: Topology | Unseen
) -> tuple[str, ...] | Unseen | None:
    """Find other managers of this node's GPUs; None where there is no API server."""
    if settings.standalone:
        return None
    try:
        access = find_access(settings.kubeconfig)
    except NoAccess:
        return None
    node = node_name(settings.hostname_override)
    gpus = () if isinstance(topology, Unseen) else [gpu.uuid for gpu in topology.gpus]
    pods, slices = list[Object](), list[Object]()
    try:
        async with KubeClient(access, agent="gpumanager-doctor") as api:
            signs = read_signs(await api.get(f"/api/v1/nodes/{node}"))
            await api.list("/api/v1/pods", pods.append, fieldSelector=f"spec.nodeName={node}")
            try:
                await api.list(SLICES, slices.append, fieldSelector=f"spec.nodeName={node}")
            except ApiRefused as error:
                if error.status != NOT_FOUND:
                    raise
        held = {
            f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}": found
            for one in pods
            if (found := foreign_resources(one))
        }
        foreign = [one for one in map(read_slice, slices) if one]
    except (GpuManagerError, *NOT_UNDERSTOOD) as error:
        return Unseen(str(error))
    return tuple(map(str, other_managers(signs, foreign, held, gpus)))


async def await_answer(question: Awaitable[T]) -> T | Unseen:
    """Await a question that is bounded in time by itself."""
    try:
        return await question
    except (GpuManagerError, OSError) as error:
        return Unseen(str(error))
