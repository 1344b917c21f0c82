"""The promises in force: found fast, and the same that a look through all of them finds."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.journal import Allocation, Journal, differences
from gpumanager.grants.live import Live, naming, of_admission, on_gpu, without
from tests.allocator.journals import allocation, allocations, journal

GPUS = ("GPU-a", "GPU-b")
few = st.builds(
    allocation,
    name=st.sampled_from("abcdefgh"),
    admission=st.sampled_from("xyz"),
    core_ids=st.lists(st.sampled_from(("a-c-1", "a-c-2", "b-c-1", "")), max_size=3).map(tuple),
    memory_ids=st.lists(st.sampled_from(("a-m-1", "b-m-2")), max_size=2).map(tuple),
    gpus=st.sets(st.sampled_from(GPUS), max_size=2).map(tuple),
    released=st.booleans(),
)
changes = st.lists(
    st.one_of(
        st.lists(few, min_size=1, max_size=3).map(lambda new: ("put", new)),
        st.sampled_from("abcdefgh").map(lambda name: ("drop", name)),
    ),
    max_size=12,
)


def after(before: Journal, change: tuple[str, list[Allocation] | str]) -> Journal:
    match change:
        case ("put", list(new)):
            return before.put(*new)
        case (_, name):
            return before.drop([name])  # type: ignore[list-item]


def names(found: Iterable[Allocation]) -> list[str]:
    return [one.allocation for one in found]


@given(changes)
def test_what_follows_all_changes_finds_what_a_look_through_all_finds(
    history: list[tuple[str, list[Allocation] | str]],
) -> None:
    now, live = Journal(), Live.of(Journal())
    for change in history:
        now = after(now, change)
        live = live.follow(now)

    plain = now.live()
    assert tuple(live) == plain
    for gpu in map(GpuUUID, GPUS):
        assert names(on_gpu(live, gpu)) == names(on_gpu(plain, gpu))
    for admission in "xyz":
        assert names(of_admission(live, admission)) == names(of_admission(plain, admission))
    for name in "abcdefgh":
        others = without(live, name)  # type: ignore[arg-type]
        rest = without(plain, name)  # type: ignore[arg-type]
        assert names(others) == names(rest)
        assert names(on_gpu(others, GpuUUID("GPU-a"))) == names(on_gpu(rest, GpuUUID("GPU-a")))
    for device_id in ("a-c-1", "b-m-2", ""):
        holders = {one.allocation for one in plain if device_id in (*one.core_ids, *one.memory_ids)}
        assert holders <= set(names(naming(live, [device_id])))


def test_an_allocation_on_another_gpu_than_its_ids_name_is_found_by_both() -> None:
    live = Live.of(journal(allocation("a", gpus=(GpuUUID("GPU-b"),))))

    assert names(on_gpu(live, GpuUUID("GPU-b"))) == ["a"]
    assert names(on_gpu(live, GpuUUID("GPU-0000000a"))) == []
    assert names(naming(live, ["0000000a-c-99"])) == ["a"]


@given(st.lists(allocations, max_size=6), st.lists(allocations, max_size=6), st.booleans())
def test_differences_lead_from_the_one_journal_to_the_other(
    first: list[Allocation], second: list[Allocation], fresh: object
) -> None:
    before = journal(*first)
    later = journal(*second) if fresh else before.put(*second)

    old, new = differences(before, later)

    assert before.drop(names(old)).put(*new).allocations == later.allocations  # type: ignore[arg-type]
