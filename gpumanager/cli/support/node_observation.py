"""Observe all that an agent with these settings would use, and change nothing.

Each question is bounded to some seconds: what does not answer is unseen, and that is a finding.
"""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from gpumanager.agent.host import SHIMS, container_runtime, use_driver_root
from gpumanager.cli.support.claims_observation import observe_claims, registrations
from gpumanager.cli.support.other_managers import find_managers
from gpumanager.doctor.question import DoctorQuestion
from gpumanager.doctor.values import (
    ContainersView,
    Directory,
    GpuView,
    Held,
    InstalledDriver,
    KubeletView,
    ListeningSocket,
    ObservedNode,
    OwnView,
    SharesView,
    Trouble,
    Unseen,
)
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.driver_version import loaded_driver
from gpumanager.gpu.health.events import NvmlHealth
from gpumanager.gpu.health.state import PENDING_RESET, GpuHealth, diagnosis
from gpumanager.gpu.kernel_modules import HMM, kernel_file
from gpumanager.gpu.nvml import SPLIT, NvmlError, discover_here, driver
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.grpc_wire import sockets_like
from gpumanager.isolation.edits import CONTROL
from gpumanager.kubelet.checkpoint import read_checkpoint
from gpumanager.kubelet.pods import KubeletPods
from gpumanager.kubelet.probe import probe
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
from gpumanager.runtime.cgroup_files import CgroupFiles
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
    gpus, kubelet, containers, own = await asyncio.gather(
        asyncio.to_thread(observe_gpus, settings),
        observe_kubelet(settings),
        observe_containers(settings),
        asyncio.to_thread(observe_own, settings),
    )
    claims = None
    if settings.interface != DEVICE_PLUGINS:
        driver = "" if isinstance(gpus.installed, Unseen) else gpus.installed.version
        claims = await observe_claims(
            settings, gpus.topology, driver, _best(registrations(settings))
        )
    managers = await find_managers(settings, gpus.topology)
    shares = await asyncio.to_thread(observe_shares, settings)
    return ObservedNode(
        gpus,
        shares,
        kubelet,
        containers,
        own,
        claims,
        managers,
        beside=settings.beside_other_managers,
    )


def observe_gpus(settings: AgentSettings) -> GpuView:
    use_driver_root(settings.driver_root)
    libraries = DoctorQuestion(lambda: find_driver(read_host(settings.driver_root)))
    loaded = DoctorQuestion(loaded_driver)
    troubles = DoctorQuestion(lambda: tuple(_troubles(settings.driver_root / "sys")))
    sysfs, reserved = settings.driver_root / "sys", settings.reserved_memory
    topology = DoctorQuestion(lambda: discover_here(sysfs, reserved)).answer()
    shims = (SHIMS.cuda, SHIMS.ml, SHIMS.cuda_link, SHIMS.ml_link)
    gpus = () if isinstance(topology, Unseen) else topology.gpus
    names = (*CONTROL, *(f"nvidia{gpu.minor}" for gpu in gpus))
    nodes = [settings.device_directory / name for name in names]
    found = libraries.answer()
    return GpuView(
        installed=found
        if isinstance(found, Unseen)
        else InstalledDriver(found.version, found.cuda.path, found.warnings),
        loaded=loaded.answer(),
        topology=topology,
        missing_nodes=tuple(node for node in nodes if not exists(node)),
        missing_shims=tuple(path for path in shims if not path.is_file()),
        troubles=troubles.answer(),
    )


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


def observe_shares(settings: AgentSettings) -> SharesView:
    unlimited = DoctorQuestion(lambda: tuple(_unlimited(settings)))
    hmm = DoctorQuestion(lambda: _reaches_pageable(kernel_file(settings.driver_root, HMM)))
    return SharesView(unlimited.answer(), hmm.answer())


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


async def observe_kubelet(settings: AgentSettings) -> KubeletView:
    directory = settings.device_plugin_path
    kubelet = KubeletPods(
        settings.kubelet_endpoint, token=settings.kubelet_token, deadline=KUBELET_SECONDS
    )
    pods = await await_answer(kubelet.pods())
    checkpoint = directory / KUBELET_CHECKPOINT
    claimed = DoctorQuestion(lambda: read_checkpoint(checkpoint) if exists(checkpoint) else None)
    # By which the kubelet finds an agent with these settings: of each, those of all instances.
    plugins = [
        [path, *sockets_like(path)]
        for path in (directory / name for name in (VCORE_SOCKET, VMEMORY_SOCKET))
    ]
    claims = [registrations(settings)]
    wanted = {DEVICE_PLUGINS: plugins, CLAIMS: claims}.get(settings.interface, plugins + claims)
    resources = settings.pod_resources_socket
    state = listener(resources)
    listens = state is ListeningSocket.LISTENS
    version = await await_answer(kubelet.version())
    holders = await asyncio.to_thread(claimed.answer)
    held: Held | Unseen | None
    if holders is None or isinstance(holders, Unseen):
        held = holders
    else:
        amounts = (
            sum(len(one.ids) for one in holders if one.resource == name)
            for name in (VCORE, VMEMORY)
        )
        held = Held(*amounts)
    return KubeletView(
        socket=directory / KUBELET_SOCKET,
        listener=listener(directory / KUBELET_SOCKET),
        sockets=tuple(map(_best, wanted)),
        version=version,
        pods=pods if isinstance(pods, Unseen) else len(pods),
        held=held,
        pod_resources=await await_answer(probe(resources))
        if listens
        else Unseen(f"{resources}: {state.value}"),
    )


def _best(paths: Sequence[Path]) -> ListeningSocket:
    """Return the best state of any instance's socket."""
    found = (listener(path) for path in paths)
    return max(found, key=list(ListeningSocket).index, default=ListeningSocket.ABSENT)


def listener(path: Path) -> ListeningSocket:
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


async def observe_containers(settings: AgentSettings) -> ContainersView:
    runtime = container_runtime(settings)
    try:
        who = await await_answer(runtime.version())
    finally:
        await runtime.close()
    root = settings.driver_root
    view = ContainersView(
        who if isinstance(who, Unseen) else str(who),
        None,
        None,
        nvidia_defaults=await _or_none(lambda: nvidia_defaults(root)),
        nvidia_devices=await _or_none(lambda: nvidia_devices(root)),
    )
    files = await asyncio.to_thread(DoctorQuestion(CgroupFiles.here).answer)
    if isinstance(files, Unseen) or files.version is None:
        return view
    driver = await asyncio.to_thread(DoctorQuestion(files.driver).answer)
    made_by = None if isinstance(driver, Unseen) or driver is None else driver.value
    return replace(view, cgroups=files.version.value, driver=made_by)


async def _or_none(ask: Callable[[], tuple[Path, ...]]) -> tuple[Path, ...]:
    answer = await asyncio.to_thread(DoctorQuestion(ask).answer)
    return () if isinstance(answer, Unseen) else answer


def observe_own(settings: AgentSettings) -> OwnView:
    directories = DoctorQuestion(lambda: tuple(_directories(settings)))
    journal = settings.checkpoint_path / FILE_NAME
    granted = DoctorQuestion(
        lambda: len(JournalFile(journal).load().live()) if exists(journal) else None
    )
    namespace = None
    with contextlib.suppress(OSError):
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    status = Path("/proc/self/status").read_text().splitlines()
    effective = next(line for line in status if line.startswith("CapEff:"))
    capabilities = int(effective.split()[1], 16)
    return OwnView(
        root=os.geteuid() == 0,
        sees_all_processes=namespace == FIRST_PID_NAMESPACE,
        takes_books_back=capabilities & TAKES_BOOKS_BACK == TAKES_BOOKS_BACK,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        directories=directories.answer(),
        granted=granted.answer(),
    )


def _directories(settings: AgentSettings) -> Iterator[Directory]:
    yield directory("allocations", settings.virtual_manager_path)
    yield directory("journal directory", settings.checkpoint_path)
    config = read_config(settings.volume_config or SHIPPED)
    bases = (config.shared.base, config.whole.base)
    for base in dict.fromkeys(bases if settings.volume_base is None else (settings.volume_base,)):
        yield directory("driver volumes", base, for_code=True)


def directory(purpose: str, path: Path, *, for_code: bool = False) -> Directory:
    """Return a directory or, if it does not exist yet, the one in which it would be made."""
    there = next(one for one in (path, *path.absolute().parents) if exists(one))
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


def exists(path: Path) -> bool:
    """Return whether a path exists; False also for what may not be read."""
    try:
        path.stat()
    except OSError:
        return False
    return True


async def await_answer(question: Awaitable[T]) -> T | Unseen:
    """Await a question that is bounded in time by itself."""
    try:
        return await question
    except (GpuManagerError, OSError) as error:
        return Unseen(str(error))
