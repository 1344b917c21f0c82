"""From a page to the samples of a metric: amounts and labels. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.monitor.metrics.journal_timing import JournalWrites
from gpumanager.monitor.metrics.latency import Latencies
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Snapshot
from gpumanager.monitor.unlimited.audit import Tally
from gpumanager.supervisor import Supervisor
from gpumanager.units import MIB

T = TypeVar("T")
Rows = Iterable[tuple[tuple[str, ...], float]]

ORIGINAL: Final = ("pod_name", "namespace", "node", "container_name")
GPU: Final = ("gpu", "uuid")
CONTAINER: Final = ("namespace", "pod", "container")
DEVICE: Final = (*CONTAINER, "claim", "gpu")
"""claim: empty, and so no label, for what came by a device plugin."""


@dataclass(frozen=True, slots=True)
class Page:
    """What all rows are read from."""

    snapshot: Snapshot
    latencies: Latencies = field(default_factory=Latencies)
    writes: JournalWrites = field(default_factory=JournalWrites)
    tally: Tally = field(default_factory=Tally)
    version: str = ""
    tasks: Supervisor = field(default_factory=Supervisor)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. kind: gauge or counter, whose samples end in _total."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    rows: Callable[[Page], Rows]


def single(value: Callable[[Page], float]) -> Callable[[Page], Rows]:
    return lambda page: [((), value(page))]


def _gpu_labels(view: GpuSnapshot) -> tuple[str, str]:
    return f"gpu{view.gpu.index}", view.gpu.uuid


def of_gpus(value: Callable[[GpuSnapshot], float | None]) -> Callable[[Page], Rows]:
    """None: a GPU that does not tell has no such series."""

    def rows(page: Page) -> Iterator[tuple[tuple[str, ...], float]]:
        for view in page.snapshot.gpus:
            number = value(view)
            if number is not None:
                yield _gpu_labels(view), number

    return rows


def shared(view: ContainerSnapshot, device: DeviceView) -> bool:
    """Return whether there are books of it. A share that nobody measures has zeros."""
    return not unmetered(view, device)


def unmetered(view: ContainerSnapshot, device: DeviceView) -> bool:
    """Return whether only the driver knows what a container does on a GPU, which it has whole."""
    share = view.grant.shares.get(device.gpu.uuid)
    return share is not None and share.exclusive


def bursting(_view: ContainerSnapshot, device: DeviceView) -> bool:
    """Return whether the ceiling is not the grant."""
    return device.ceiling > device.granted


def of_devices(
    value: Callable[[DeviceView], float | None],
    where: Callable[[ContainerSnapshot, DeviceView], bool] = lambda *_: True,
) -> Callable[[Page], Rows]:
    """None: a device of which the driver does not tell has no such series."""

    def rows(page: Page) -> Iterator[tuple[tuple[str, ...], float]]:
        for view in page.snapshot.containers:
            claim = view.claim.name if view.claim else ""
            for device in view.devices:
                number = value(device) if where(view, device) else None
                if number is not None:
                    yield (*view.labels, claim, f"gpu{device.gpu.index}"), number

    return rows


def original(
    values: Callable[[ContainerSnapshot], Iterable[tuple[str, float]]],
) -> Callable[[Page], Rows]:
    def rows(page: Page) -> Rows:
        found: dict[tuple[str, ...], float] = {}
        for view in page.snapshot.containers:
            namespace, pod, container = view.labels
            for last, number in values(view):
                # Two whole GPUs of a claim may be two grants, both shown for one init container.
                key = (pod, namespace, page.snapshot.node, container, last)
                found[key] = found.get(key, 0) + number
        return found.items()

    return rows


def memory_mib(device: DeviceView) -> float:
    """Return what the driver tells, and where it does not, what the books say."""
    return (device.used if device.measured is None else device.measured) // MIB


def busy_percent(device: DeviceView) -> float:
    """Return what the driver tells, and where it does not, what was paid for."""
    return device.share if device.percent is None else device.percent


def each_and_total(
    value: Callable[[DeviceView], float],
) -> Callable[[ContainerSnapshot], Iterable[tuple[str, float]]]:
    def values(view: ContainerSnapshot) -> Iterator[tuple[str, float]]:
        numbers = [(f"gpu{one.gpu.index}", value(one)) for one in view.devices]
        yield from numbers
        yield "total", sum(number for _, number in numbers)

    return values


def requested_mib(view: ContainerSnapshot) -> float:
    """Return what was asked for; of whole GPUs without a word about memory, all of it."""
    asked = view.grant.blocks * 256
    return asked or sum(one.gpu.memory // MIB for one in view.devices)


def degraded(page: Page) -> Rows:
    """Return those that there are: zeros would be many, and no alert reads them."""
    found = Counter[tuple[str, ...]]()
    for view in page.snapshot.containers:
        for reason, count in () if view.whole else view.degraded.items():
            found[(*view.labels, reason)] += count
    return ((labels, count) for labels, count in found.items() if count)


def claim_containers(page: Page) -> Rows:
    """Return each container that uses a claim, also those that it is not shown for."""
    return (
        ((claim.namespace, claim.name, ",".join(claim.requests), user.name, user.container), 1)
        for view in page.snapshot.containers
        if (claim := view.claim)
        for user in view.users
    )


def xids(page: Page) -> Rows:
    return (
        ((*_gpu_labels(view), str(code)), count)
        for view in page.snapshot.gpus
        for code, count in sorted(view.fitness.xids.items())
    )


def gpu_info(page: Page) -> Rows:
    return (
        ((*_gpu_labels(view), view.gpu.model, view.gpu.bus_id, str(view.gpu.minor)), 1)
        for view in page.snapshot.gpus
    )


def gpu_interface(page: Page) -> Rows:
    return (
        ((*_gpu_labels(view), view.fitness.interface), 1)
        for view in page.snapshot.gpus
        if view.fitness.interface
    )


def ratio(percent: float | None) -> float | None:
    """Return 0 to 1; None stays."""
    return None if percent is None else percent / 100


def told(value: Callable[[GpuStatus], T | None]) -> Callable[[GpuSnapshot], T | None]:
    """Return what the driver tells of a GPU; None where it does not."""
    return lambda view: None if view.status is None else value(view.status)


def watts(view: GpuSnapshot) -> float | None:
    milliwatts = told(lambda status: status.power_milliwatts)(view)
    return None if milliwatts is None else milliwatts / 1000
