"""Journals for tests: any, and some."""

from hypothesis import strategies as st

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import (
    Claimant,
    ClaimedDevice,
    ClaimSource,
    DevicePluginSource,
    EvidenceSource,
    Grant,
    LegacySource,
    State,
    shares_of,
)
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import change, line, opening
from gpumanager.grants.journal_text import unpack
from gpumanager.ids import AllocationID, PodUID
from gpumanager.placement.values import Evaluator

CLAIMANT = Claimant(PodUID("uid-a"), "default", "a", "main")


CORES = tuple(f"0000000a-c-{i}" for i in range(30))
MEMORY = ("0000000a-m-0", "0000000a-m-2")


def allocation(
    name: str,
    admission: str | None = None,
    core_ids: tuple[str, ...] = CORES,
    memory_ids: tuple[str, ...] = MEMORY,
    gpus: tuple[GpuUUID, ...] = (GpuUUID("GPU-0000000a"),),
    **changes: object,
) -> Grant:
    kind = changes.pop("kind", DevicePluginSource)
    values: dict[str, object] = {
        "id": AllocationID(name),
        "source": kind(name if admission is None else admission, core_ids, memory_ids),  # type: ignore[operator]
        "shares": shares_of(gpus, len(core_ids), len(memory_ids), exclusive=False),
        "isolation": "shim",
        "why": "fullest GPU that still fits",
        "time": 12.5,
    }
    return Grant(**(values | changes))  # type: ignore[arg-type]


def journal(*allocations: Grant) -> Journal:
    return Journal().put(*allocations)


texts = st.text(max_size=8)
ids = st.lists(
    st.one_of(texts, st.builds("{}-{}".format, texts, st.integers(0, 30))), max_size=12
).map(tuple)
claim_sources = st.builds(
    ClaimSource,
    uid=texts,
    namespace=texts,
    name=texts,
    devices=st.lists(
        st.builds(ClaimedDevice, texts, texts, st.none() | texts), min_size=1, max_size=3
    ).map(tuple),
    admin=st.booleans(),
)
of_claims = st.builds(allocation, name=texts, source=claim_sources, released=st.booleans())
of_devices = st.builds(
    allocation,
    name=texts,
    admission=texts,
    core_ids=ids,
    memory_ids=ids,
    kind=st.sampled_from((DevicePluginSource, LegacySource, EvidenceSource)),
    state=st.sampled_from(State),
    evaluator=st.sampled_from(Evaluator),
    why=texts,
    time=st.floats(0, 1e12),
    ceiling=st.none() | st.integers(1, 100),
    candidate=st.none() | st.just(CLAIMANT),
    pod=st.none() | st.just(CLAIMANT),
    suspect=st.booleans(),
    released=st.booleans(),
)
allocations = of_devices | of_claims


def is_a_range(device_id: str) -> bool:
    return tuple(unpack([device_id])) != (device_id,)


def unambiguous(kept: list[Grant]) -> list[Grant]:
    """Without those whose IDs look like ranges: no plugin makes such."""
    return [a for a in kept if not any(is_a_range(i) for i in a.ids.all)]


histories = st.lists(st.lists(allocations, max_size=4).map(unambiguous), min_size=1, max_size=5)
"""Journals, one after another."""


def written(first: Journal, *later: Journal) -> bytes:
    """A log that begins with one journal and goes on to others."""
    contents, number = opening(first)
    for before, after in zip((first, *later), later, strict=False):
        contents += line(number, *change(before, after))
        number += 1
    return contents
