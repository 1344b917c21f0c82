"""All that is known of one row, in sentences. Pure."""

from collections.abc import Iterator

from gpumanager.units import format_bytes
from gpumanager.view.figures import seconds
from gpumanager.view.listing import Row
from gpumanager.view.node import ContainerRow, GpuRow
from gpumanager.view.story import unlimited_sentences

UNKNOWN = "not told"


def details(row: Row) -> Iterator[str]:
    """Yield the lines about a node, a GPU or a container."""
    seen, gpu = row.seen, row.gpu
    if gpu is None:
        yield f"{seen.name}, agent at {seen.agent}"
        if seen.trouble:
            yield f"away: {seen.trouble}; what stands here was seen before"
        if seen.node is not None:
            driver = "answers" if seen.node.answers else "is silent"
            yield f"agent {seen.node.version}; the driver {driver}"
            if seen.node.unregistered:
                yield f"the kubelet does not know of {', '.join(seen.node.unregistered)}"
        return
    if row.container is not None:
        yield from _container(gpu, row.container)
        return
    yield f"GPU {gpu.index}, {gpu.model}, {gpu.bus_id} ({gpu.uuid})"
    granted, used = _bytes(gpu.memory_granted), _bytes(gpu.memory_used)
    yield f"memory    {_bytes(gpu.memory)}, granted {granted}, used {used}"
    yield f"time      granted {gpu.cores:.0f} %, busy by the driver {_percent(gpu.busy)}"
    if gpu.celsius is not None and gpu.watts is not None:
        yield f"climate   {gpu.celsius:.0f} degrees Celsius, {gpu.watts:.0f} W"
    health = "in use" if gpu.healthy else "closed: no new container gets it"
    yield f"health    {health}; Xids since the agent's start: {gpu.xids}"


def _container(gpu: GpuRow, one: ContainerRow) -> Iterator[str]:
    yield f"{one.name} on GPU {gpu.index} ({gpu.uuid})"
    if one.claim:
        shared = " for all of them together" if len(one.users) > 1 else ""
        yield f"claim     {one.claim[0]} (request {one.claim[1]}){shared}"
    yield from (f"limits    {text}" for text in unlimited_sentences(one.unlimited))
    measured = f"by the driver {_bytes(one.measured)}"
    busy = f"busy by the driver {_percent(one.busy)}"
    if one.used is None:
        yield f"memory    the whole GPU's; {measured}"
        yield f"time      the whole GPU's; {busy}"
        yield f"processes {one.processes:.0f}"
        return
    used = f"{_bytes(one.used)} of {_bytes(one.limit)}, at most {_bytes(one.peak)}"
    yield f"memory    {used}, {measured}"
    granted, ceiling = one.granted or 0, one.ceiling or 0
    burst = f", up to {ceiling} %" if ceiling > granted else ""
    yield f"time      {_percent(one.share)} of {granted} % granted{burst}, {busy}"
    waited = (
        f"{one.throttled_launches or 0:,.0f} throttled, {seconds(one.throttled_seconds)} in all"
    )
    now = "" if one.throttled is None else f", {one.throttled:.0f} % of the last seconds"
    yield f"launches  {one.launches or 0:,.0f}, {waited}{now}"
    yield f"processes {one.processes:.0f}; memory refused {one.refusals or 0:,.0f} times"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} %"


def _bytes(amount: int | None) -> str:
    return UNKNOWN if amount is None else format_bytes(amount)
