"""All that is known of one row, in sentences. Pure."""

from collections.abc import Iterator

from gpumanager.units import format_bytes
from gpumanager.view.figures import seconds
from gpumanager.view.listing import Row
from gpumanager.view.values import ContainerRow, GpuRow, Seen

UNKNOWN = "not told"


def details(row: Row) -> tuple[str, ...]:
    if row.gpu is None:
        return tuple(_node(row.seen))
    if row.container is None:
        return tuple(_gpu(row.gpu))
    return tuple(_container(row.gpu, row.container))


def _node(seen: Seen) -> Iterator[str]:
    yield f"{seen.name}, agent at {seen.agent}"
    if seen.trouble:
        yield f"away: {seen.trouble}; what stands here was seen before"
    if seen.node is None:
        return
    yield f"agent {seen.node.version}; the driver {'answers' if seen.node.answers else 'is silent'}"
    if seen.node.unregistered:
        yield f"the kubelet does not know of {', '.join(seen.node.unregistered)}"


def _gpu(gpu: GpuRow) -> Iterator[str]:
    yield f"GPU {gpu.index}: {gpu.model}, {gpu.uuid}, {gpu.bus_id}"
    used = UNKNOWN if gpu.memory_used is None else _bytes(gpu.memory_used)
    yield f"memory: {_bytes(gpu.memory)}, {_bytes(gpu.memory_granted)} promised, {used} used"
    yield f"time: {gpu.cores:.0f} % promised, {_percent(gpu.busy)} busy by the driver"
    health = "in use" if gpu.healthy else "no new container gets it"
    yield f"health: {health}; Xids since the agent's start: {gpu.xids}"


def _container(gpu: GpuRow, one: ContainerRow) -> Iterator[str]:
    yield f"{one.name} on GPU {gpu.index}, {gpu.uuid}; processes: {one.processes:.0f}"
    measured = UNKNOWN if one.measured is None else _bytes(one.measured)
    if one.used is None:
        yield f"memory: the whole GPU's; {measured} measured by the driver"
        yield f"time: the whole GPU's; {_percent(one.busy)} busy by the driver"
        return
    yield (
        f"memory: {_bytes(one.used)} of {_bytes(one.limit)}, {_bytes(one.peak)} at most; "
        f"{measured} by the driver; {one.refusals or 0:,.0f} requests refused"
    )
    burst = f", up to {one.ceiling:.0f} % while others leave it" if _bursts(one) else ""
    yield (
        f"time: {_percent(one.share)} of {one.promised:.0f} % promised{burst}; "
        f"{_percent(one.busy)} busy by the driver"
    )
    waited = seconds(one.throttled_seconds or 0)
    yield (
        f"launches: {one.launches or 0:,.0f}, of which {one.throttled_launches or 0:,.0f} "
        f"waited, {waited} in all"
    )


def _bursts(one: ContainerRow) -> bool:
    return one.ceiling > one.promised


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} %"


def _bytes(amount: float | None) -> str:
    return UNKNOWN if amount is None else format_bytes(int(amount))
