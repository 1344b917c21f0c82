"""Where a pod wants to be: the words for it, and where it then goes on a node."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.placement.near import lacking, nearness, place_near
from gpumanager.placement.nearness import NEARNESS
from gpumanager.placement.preference import DEFAULT, read_gpu_policy, read_preference
from gpumanager.placement.values import FreeGpus, GpuChoice, Reason, Refusal, Request
from gpumanager.units import GIB, Bytes


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", "least-waste"),
        ("binpack", "binpack"),
        (" Spread ", "spread"),
        ("least-fragmentation", "least-waste"),
        ("binpack=0.5", "binpack=0.5"),
        ("least-waste=0.7,topology=0.3", "least-waste=0.7,topology=0.3"),
        ("topology", "least-waste,topology"),
        ("link", "least-waste,topology"),
        ("link-strict", "least-waste,topology=strict"),
        ("numa=strict, spread", "spread,numa=strict"),
        ("numa-strict,topology", "least-waste,numa=strict,topology"),
    ],
)
def test_words_mean_the_same_however_they_are_written(text: str, meaning: str) -> None:
    found = read_preference(text).over(DEFAULT)

    assert str(found) == meaning
    assert read_preference(meaning).over(DEFAULT) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("binpak", "'binpak' is not a policy: write one of least-waste, binpack, spread"),
        ("binpack=", "write binpack=0.5"),
        ("binpack=much", "the weight is a number above 0"),
        ("binpack=-1", "the weight is a number above 0"),
        ("binpack=nan", "the weight is a number above 0"),
        ("binpack=inf", "the weight is a number above 0, up to 1000"),
        ("binpack=strict", "binpack cannot be strict: only topology and numa can"),
        ("spread,spread=2", "spread is named twice"),
        ("x" * 5000, "x…' is not a policy"),
    ],
)
def test_what_is_no_policy_is_told(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"polic|weight|strict|twice") as caught:
        read_preference(text)

    assert said in str(caught.value)
    assert len(str(caught.value)) < 200


def test_only_policies_of_rooms_choose_among_gpus() -> None:
    assert read_gpu_policy(" Binpack ") == "binpack"
    assert read_gpu_policy("") == ""
    with pytest.raises(
        ValueError, match="'numa' is not a policy for GPUs: write one of least-waste"
    ):
        read_gpu_policy("numa")


def test_a_policy_of_its_own_for_gpus_is_told_beside_that_for_nodes() -> None:
    spread = read_preference("spread")

    assert spread.spelled == "spread"
    assert replace(spread, gpus="binpack").spelled == "spread, GPUs by binpack"


def test_what_a_pod_does_not_say_the_cluster_says() -> None:
    cluster = read_preference("spread,numa=strict")

    assert str(read_preference("").over(cluster)) == "spread,numa=strict"
    assert str(read_preference("topology").over(cluster)) == "spread,topology"
    assert str(read_preference("binpack").over(cluster)) == "binpack"
    for pod in ("", "topology", "binpack"):
        assert read_preference(pod).over(replace(cluster, gpus="spread")).gpus == "spread"


def machine(numa: Sequence[int | None], *nvlinks: tuple[int, int]) -> Topology:
    """GPUs by their NUMA nodes; pairs that NVLink connects."""
    links = {frozenset(pair) for pair in nvlinks}

    def bond(a: int, b: int) -> Bond | None:
        level = Level.PHB if numa[a] == numa[b] else Level.SYS
        return None if a == b else Bond(level, 2 if frozenset((a, b)) in links else 0)

    size = range(len(numa))
    gpus = [
        Gpu(n, n, GpuUUID(f"GPU-{n}"), f"{n:02x}", "A100", Bytes(16 * GIB), numa[n]) for n in size
    ]
    return topology(gpus, [[bond(a, b) for b in size] for a in size])


CROSSED = machine((0, 0, 1, 1), (0, 2), (1, 3))
"""NVLink goes across the sockets."""


def chosen(node: Topology, text: str, cores: int = 200, taken: Sequence[int] = ()) -> object:
    books = FreeGpus.of_idle(node).without(node.gpus[place] for place in taken)
    found = place_near(node, books, Request(cores), read_preference(text))
    if isinstance(found, Refusal):
        return found.reason
    return tuple(gpu.index for gpu in found.gpus)


def test_near_is_what_the_pod_says_it_is() -> None:
    assert chosen(CROSSED, "topology") == (0, 2)
    assert chosen(CROSSED, "numa") == (0, 1)


def test_who_prefers_takes_what_there_is_and_who_is_strict_does_not() -> None:
    assert chosen(CROSSED, "topology", taken=(2, 3)) == (0, 1)
    assert chosen(CROSSED, "topology=strict", taken=(2, 3)) is Reason.NOT_NEAR
    assert chosen(CROSSED, "numa", taken=(1, 2)) == (0, 3)
    assert chosen(CROSSED, "numa=strict", taken=(1, 2)) is Reason.NOT_NEAR
    assert chosen(CROSSED, "numa=strict", 400) is Reason.NOT_NEAR
    assert chosen(CROSSED, "numa=strict", taken=(0, 1, 2)) is Reason.NO_FREE_GPU


def test_strict_in_one_way_may_prefer_another() -> None:
    both = machine((0, 0, 0, 1, 1), (1, 2), (0, 3))

    assert chosen(both, "numa=strict,topology") == (1, 2)
    assert chosen(both, "numa=strict,topology", taken=(1,)) == (0, 2)
    assert chosen(CROSSED, "numa=strict,topology=strict") is Reason.NOT_NEAR


def test_of_groups_alike_the_smallest_is_broken() -> None:
    node = machine((0, 0, 0, 0, 1, 1, 1))

    assert chosen(node, "numa") == (4, 5)


def test_a_chain_of_links_connects_but_not_over_gpus_that_are_taken() -> None:
    chain = machine((0, 0, 0), (0, 1), (1, 2))

    assert chosen(chain, "topology=strict", 300) == (0, 1, 2)
    assert chosen(chain, "topology=strict", 200, taken=(1,)) is Reason.NOT_NEAR


def test_where_numa_is_unknown_all_gpus_are_on_one_node() -> None:
    assert chosen(machine((None, None, None)), "numa=strict", 300) == (0, 1, 2)


def test_what_is_missing_is_told_and_whether_it_always_will_be() -> None:
    strict = read_preference("topology=strict,numa=strict")

    def missing(cores: int, text: str = "") -> tuple[str, bool]:
        kind, always = lacking(CROSSED, Request(cores), read_preference(text) if text else strict)
        return kind.name, always

    assert missing(200) == ("numa", True)
    assert missing(300) == ("topology", True)
    assert missing(200, "numa=strict") == ("numa", False)


def test_how_near_gpus_are_is_between_0_and_1() -> None:
    linked, few = NEARNESS["topology"].of, NEARNESS["numa"].of

    assert linked(CROSSED, (0, 3)) == pytest.approx(0.1)
    assert linked(CROSSED, (0, 1)) == pytest.approx(0.3)
    assert linked(CROSSED, (0, 1)) < linked(CROSSED, (0, 1, 2)) < linked(CROSSED, (0, 2)) < 1
    assert (linked(CROSSED, (0,)), few(CROSSED, (0,)), few(CROSSED, (0, 1))) == (1.0, 1.0, 1.0)
    assert few(CROSSED, (0, 2)) == 0.5


def test_nearness_counts_for_containers_with_several_gpus() -> None:
    wanted = read_preference("topology=1,numa=2")

    assert nearness(CROSSED, [(0,), (1,)], wanted) == pytest.approx(3.0)
    assert nearness(CROSSED, [(0, 1), (3,)], wanted) == pytest.approx(0.3 + 2.0)


def test_what_is_found_is_always_free() -> None:
    for text in ("topology", "numa", "topology=strict,numa"):
        books = FreeGpus.of_idle(CROSSED).occupy(CROSSED.gpus[0].uuid, Request(10, 1))
        found = place_near(CROSSED, books, Request(200), read_preference(text))
        assert isinstance(found, GpuChoice)
        assert all(books.of(gpu).whole for gpu in found.gpus)
