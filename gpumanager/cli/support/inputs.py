"""The inputs of the doctor's checks: all that an agent with these settings would use.

Nothing is changed. Each input is read in a thread of its own and given up after some seconds: what
does not answer is unseen, and that is a finding.
"""

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from gpumanager.agent.host import SHIMS, container_runtime, use_driver_root
from gpumanager.cli.support.claim_inputs import read_claim_inputs
from gpumanager.doctor.checks import MILD, XIDS
from gpumanager.doctor.question import DoctorQuestion, Unseen
from gpumanager.doctor.values import (
    Finding,
    InstalledDriver,
    ListeningSocket,
    note,
    well,
    wrong,
)
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.device_attributes import loaded_driver
from gpumanager.gpu.health.events import NvmlHealth
from gpumanager.gpu.health.state import PENDING_RESET, GpuHealth, diagnosis
from gpumanager.gpu.kernel_modules import HMM, kernel_file
from gpumanager.gpu.nvml import SPLIT, NvmlError, discover_here, driver
from gpumanager.gpu.values import Topology
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.grpc_wire import sockets_like
from gpumanager.isolation.edits import CONTROL
from gpumanager.kube.access import NoAccess, find_access, node_name
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, Object
from gpumanager.kube.informer import full_name
from gpumanager.kubelet.checkpoint import read_checkpoint
from gpumanager.kubelet.pod_resources import probe
from gpumanager.kubelet.pods import KubeletPods
from gpumanager.names import (
    CLAIM_REGISTRATIONS,
    CLAIMS,
    DEVICE_PLUGINS,
    KUBELET_CHECKPOINT,
    KUBELET_SOCKET,
    VCORE,
    VCORE_SOCKET,
    VMEMORY,
    VMEMORY_SOCKET,
)
from gpumanager.node_status.manager_watch import SLICES
from gpumanager.node_status.other_managers import foreign_resources, other_managers
from gpumanager.runtime.cdi_support import obstacle_of
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.nvidia_runtime import nvidia_defaults, nvidia_devices
from gpumanager.settings import AgentSettings
from gpumanager.units import MIB, format_bytes
from gpumanager.volume.config import SHIPPED, read_config
from gpumanager.volume.driver import find_driver
from gpumanager.volume.find import find_libraries
from gpumanager.volume.host import read_host
from gpumanager.volume.manager import OPENCL

LEAST_FREE: Final = 64 * MIB
"""Room that the journal, the books and the driver's links are sure to fit in."""
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


async def read_inputs(settings: AgentSettings) -> dict[str, Any]:
    """Return the inputs of the checks, by name. Raises InputError for settings with which no agent
    would start either."""
    root, plugins = settings.driver_root, settings.device_plugin_path
    use_driver_root(root)
    journal, claimed = settings.checkpoint_path / FILE_NAME, settings.interface != DEVICE_PLUGINS
    kubelet = KubeletPods(
        settings.kubelet_endpoint, token=settings.kubelet_token, deadline=KUBELET_SECONDS
    )
    asks: dict[str, Callable[[], Any]] = {
        "installed": lambda: _installed(root),
        "sees_all_processes": lambda: (
            Path("/proc/self/ns/pid").stat().st_ino == FIRST_PID_NAMESPACE
        ),
        "loaded": loaded_driver,
        "topology": lambda: discover_here(root / "sys", settings.reserved_memory),
        "troubles": lambda: tuple(_troubles(root / "sys")),
        "unlimited": lambda: tuple(_unlimited(settings)),
        "hmm": lambda: kernel_file(root, HMM).read_text().strip() != "Y",
        "held": lambda: _held(plugins / KUBELET_CHECKPOINT),
        "directories": lambda: tuple(_directories(settings)),
        "takes_books_back": lambda: _capabilities() & TAKES_BOOKS_BACK == TAKES_BOOKS_BACK,
        "grants": lambda: JournalFile(journal).load().live() if _exists(journal) else None,
        "cgroups": lambda: CgroupFiles.here().version,
        "nvidia_defaults": lambda: nvidia_defaults(root),
        "nvidia_devices": lambda: nvidia_devices(root),
    }
    questions = {name: DoctorQuestion(ask) for name, ask in asks.items()}
    pods = await await_answer(kubelet.pods())
    version = await await_answer(kubelet.version())
    pod_resources = await await_answer(_pod_resources(settings.pod_resources_socket))
    runtime = container_runtime(settings)
    name = await await_answer(runtime.version())
    cdi: str | Unseen = name if isinstance(name, Unseen) else ""
    if claimed and not isinstance(name, Unseen):
        cdi = await obstacle_of(runtime, settings.cdi_path)
    await runtime.close()
    seen: dict[str, Any] = {
        name: await asyncio.to_thread(one.answer) for name, one in questions.items()
    }
    topology, grants = seen["topology"], seen.pop("grants")
    gpus = () if isinstance(topology, Unseen) else topology.gpus
    nodes = (*CONTROL, *(f"nvidia{gpu.minor}" for gpu in gpus))
    shims = (SHIMS.cuda, SHIMS.ml, SHIMS.cuda_link, SHIMS.ml_link)
    registered = _best(sorted(settings.plugins_registry_path.glob(CLAIM_REGISTRATIONS)))
    own = [
        _best([path, *sockets_like(path)])
        for path in (plugins / VCORE_SOCKET, plugins / VMEMORY_SOCKET)
    ]
    sockets = {DEVICE_PLUGINS: own, CLAIMS: [registered]}
    seen |= {
        "missing_nodes": [
            path for node in nodes if not _exists(path := settings.device_directory / node)
        ],
        "missing_shims": [path for path in shims if not path.is_file()],
        "kubelet_socket": plugins / KUBELET_SOCKET,
        "listener": _listener(plugins / KUBELET_SOCKET),
        "sockets": sockets.get(settings.interface, [*own, registered]),
        "version": version,
        "pods": pods if isinstance(pods, Unseen) else len(pods),
        "pod_resources": pod_resources,
        "runtime": name if isinstance(name, Unseen) else str(name),
        "managers": await find_managers(settings, topology),
        "beside": settings.allow_other_managers,
        "root": os.geteuid() == 0,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "granted": len(grants) if isinstance(grants, tuple) else grants,
    }
    if claimed:
        seen |= {"registration": registered, "cdi_obstacle": cdi}
        number = "" if isinstance(seen["installed"], Unseen) else seen["installed"].version
        seen |= await read_claim_inputs(settings, topology, number, grants or ())
    return seen


def _troubles(sysfs: Path) -> Iterator[Finding]:
    """Yield what an agent would find that probes each GPU for the first time."""
    with driver(sysfs) as nvml, NvmlHealth() as health:
        for index in range(nvml.count()):
            try:
                gpu, own = nvml.gpu(index).uuid, nvml.has_own_memory(index)
            except NvmlError as error:
                # Others use it, or it is not there any more.
                say, advice = (note, MILD) if SPLIT in str(error) else (wrong, XIDS)
                yield say(f"GPU {index}: {error}", advice)
                continue
            if not own:
                yield note(f"{gpu}: {SHARED_MEMORY}", SHARED_MEMORY_ADVICE)
            finding = health.probe(gpu)
            if cause := diagnosis(GpuHealth(gpu), finding):
                yield wrong(f"{gpu}: {cause.text}", XIDS)
            elif finding.remap_pending:
                yield note(f"{gpu}: {PENDING_RESET}", MILD)


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


async def _pod_resources(path: Path) -> str:
    state = _listener(path)
    if state is not ListeningSocket.LISTENS:
        raise GpuManagerError(f"{path}: {state.value}")
    return await probe(path)


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


def _directories(settings: AgentSettings) -> Iterator[Finding]:
    yield directory("allocations", settings.virtual_manager_path)
    yield directory("journal directory", settings.checkpoint_path)
    config = read_config(settings.volume_config or SHIPPED)
    bases = (config.shared.base, config.whole.base)
    for base in dict.fromkeys(bases if settings.volume_base is None else (settings.volume_base,)):
        yield directory("driver volumes", base, for_code=True)


def directory(purpose: str, path: Path, *, for_code: bool = False) -> Finding:
    """Check a directory or, if it does not exist yet, the one in which it would be made."""
    there = next(one for one in (path, *path.absolute().parents) if _exists(one))
    obstacle, free, executable = "", 0, True
    try:
        system = os.statvfs(there)
        free = system.f_bavail * system.f_frsize
        executable = not (for_code and system.f_flag & os.ST_NOEXEC)
        if not there.is_dir():
            obstacle = f"{there} is no directory"
        elif not os.access(there, os.W_OK | os.X_OK):
            obstacle = f"{there} may not be written"
    except OSError as error:
        obstacle = error.strerror or str(error)
    if obstacle:
        advice = "give the agent a directory of the node that it can write to"
        return wrong(f"{path}: {obstacle}", advice, purpose)
    if free < LEAST_FREE:
        least = format_bytes(LEAST_FREE)
        advice = f"make room: less than {least} is too little to grant anything"
        return wrong(f"{path}: {format_bytes(free)} free", advice, purpose)
    if not executable:
        advice = "containers cannot load the driver's libraries from there: remount it with exec"
        return wrong(f"{path}: mounted noexec", advice, purpose)
    return well(f"{path}, {format_bytes(free)} free", purpose)


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
            own = await api.get(f"/api/v1/nodes/{node}")
            await api.list("/api/v1/pods", pods.append, fieldSelector=f"spec.nodeName={node}")
            try:
                await api.list(SLICES, slices.append, fieldSelector=f"spec.nodeName={node}")
            except ApiRefused as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        held = {full_name(one): found for one in pods if (found := foreign_resources(one))}
    except (GpuManagerError, *NOT_UNDERSTOOD) as error:
        return Unseen(str(error))
    return other_managers(own, slices, held, gpus)


def _installed(root: Path) -> InstalledDriver:
    found = find_driver(read_host(root))
    return InstalledDriver(found.version, found.cuda.path, found.warnings)


def _capabilities() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("CapEff:")).split()[1], 16)


async def await_answer(question: Awaitable[T]) -> T | Unseen:
    """Await a question that is bounded in time by itself."""
    try:
        return await question
    except (GpuManagerError, OSError) as error:
        return Unseen(str(error))
