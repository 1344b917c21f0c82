"""The rules one by one: who gets which GPU, why, and what is refused with which numbers."""

from collections.abc import Callable

import pytest

from gpumanager.gpu.values import Bond, Level
from gpumanager.placement.values import Evaluator, GpuChoice, Reason, Refusal
from tests.placement.placement_nodes import make_node, six


def level(name: str) -> Callable[[int, int], Bond]:
    return lambda *_: Bond(Level[name])


def refusal(answer: GpuChoice | Refusal) -> Refusal:
    assert isinstance(answer, Refusal)
    return answer


def grant(answer: GpuChoice | Refusal) -> GpuChoice:
    assert isinstance(answer, GpuChoice)
    return answer


@pytest.mark.parametrize(
    ("cores", "memory", "reason"),
    [
        (0, 1, Reason.NOT_A_REQUEST),
        (-5, 1, Reason.NOT_A_REQUEST),
        (30, -1, Reason.NOT_A_REQUEST),
        (150, 0, Reason.NOT_A_REQUEST),
        (101, 4, Reason.NOT_A_REQUEST),
        (99, 0, Reason.NO_MEMORY_ASKED),
    ],
)
def test_what_no_machine_could_grant_is_refused(cores: int, memory: int, reason: Reason) -> None:
    assert refusal(six().ask(cores, memory)).reason is reason


def test_each_size_is_decided_by_its_rule() -> None:
    rules = [grant(six().ask(cores, 1)).evaluator for cores in (99, 100, 200)]

    assert rules == [Evaluator.SHARE, Evaluator.FRAGMENT, Evaluator.LINK]


def test_a_shared_request_goes_to_the_fullest_gpu_that_still_fits() -> None:
    node = six().occupy({1: (30, 40), 2: (60, 8)})

    answer = grant(node.ask(50, 24))

    assert [gpu.index for gpu in answer.gpus] == [1]
    assert answer.why == (
        "fullest GPU that still fits: 70 of 100 cores and 24 of 64 blocks were free"
    )


def test_with_equal_cores_and_memory_the_fewer_processes_win() -> None:
    node = six().occupy({0: (20, 4)}).occupy({0: (20, 4), 1: (40, 8)})

    assert node.pick(10, 1) == [1]


def test_a_share_that_fits_nowhere_names_the_nearest_gpu() -> None:
    node = six().occupy(dict.fromkeys(range(6), (80, 60)))

    answer = refusal(node.ask(30, 4))

    assert str(answer) == (
        "no free GPU: 30 cores and 4 blocks asked; "
        "the nearest, GPU 0, has 20 cores and 4 blocks free"
    )


def test_a_share_larger_than_any_card_says_how_large_they_are() -> None:
    answer = refusal(six().ask(30, 80))

    assert str(answer) == (
        "larger than any GPU here: 30 cores and 80 blocks asked; the largest GPU has 64 blocks"
    )


def test_a_share_that_may_be_meant_in_mib_is_told_its_blocks() -> None:
    assert str(refusal(six().ask(30, 4096))).endswith(
        "the largest GPU has 64 blocks; if 4,096 MiB are meant, write 16"
    )


def test_a_machine_without_gpus_refuses_everything() -> None:
    node = make_node(0, level("SYS"))

    assert [refusal(node.ask(cores, 1)).reason for cores in (30, 100, 200)] == [
        Reason.TOO_LARGE
    ] * 3


def test_a_whole_gpu_is_the_one_that_breaks_the_loosest_bonds() -> None:
    answer = grant(six().occupy({0: 100}).ask(100))

    assert [gpu.index for gpu in answer.gpus] == [1]
    assert answer.why == "keeps linked GPUs together: its best link to another free GPU is PHB"


def test_the_last_free_gpu_has_nothing_to_break() -> None:
    node = six().occupy(dict.fromkeys((0, 1, 2, 4, 5), 100))

    assert grant(node.ask(100)).why == "the only free GPU"


def test_a_whole_gpu_must_have_the_memory_asked_for() -> None:
    node = make_node(3, level("PHB"), memory=[64, 96, 64])

    assert node.pick(100, 64) == [0]
    assert node.pick(100, 65) == [1]
    assert str(refusal(node.occupy({1: 1}).ask(100, 65))) == (
        "no free GPU: 1 whole GPU with 65 blocks asked; 0 of 1 are free"
    )
    assert str(refusal(node.ask(200, 65))) == (
        "larger than any GPU here: 2 whole GPUs with 65 blocks asked; this machine has 1"
    )


def test_cards_too_small_to_be_given_still_count_as_free_neighbours() -> None:
    """GPU 0 is paired with a small card: taking it breaks the pair, taking 2 breaks none."""

    def bond(a: int, b: int) -> Bond:
        return Bond(Level.PIX if (a, b) == (0, 1) else Level.SYS)

    node = make_node(4, bond, memory=[96, 64, 96, 96])

    assert node.pick(100, 65) == [2]
    assert node.pick(200, 65) == [2, 3]


def test_nvlinks_outweigh_any_pcie_level() -> None:
    def bond(a: int, b: int) -> Bond:
        return Bond(Level.SYS, 1) if (a, b) == (1, 2) else Bond(Level.BOARD)

    assert make_node(4, bond).pick(200) == [1, 2]


def test_with_equal_links_the_set_on_fewer_numa_nodes_wins() -> None:
    node = make_node(4, lambda *_: Bond(Level.SYS, 12), numa=[0, 1, 0, 1])

    answer = grant(node.ask(200))

    assert [gpu.index for gpu in answer.gpus] == [0, 2]
    assert answer.why == "best linked set: NV12, one NUMA node"
    assert grant(node.ask(300)).why == "best linked set: NV12 between every pair, 2 NUMA nodes"


def test_a_numa_node_nobody_knows_counts_as_one() -> None:
    node = make_node(4, lambda *_: Bond(Level.SYS, 12), numa=[0, None, 1, None])

    assert node.pick(200) == [1, 3]


def test_with_equal_links_and_nodes_the_set_that_breaks_less_wins() -> None:
    assert six().pick(200) == [4, 5]
    assert six().occupy({4: 100}).pick(200) == [0, 1]


def test_one_broken_good_link_weighs_more_than_any_number_of_worse_ones() -> None:
    """Both pairs have one NVLink; 0-1 would break one PIX, 2-3 would break three PHB."""
    special = {(0, 1): Bond(Level.SYS, 1), (2, 3): Bond(Level.SYS, 1), (0, 4): Bond(Level.PIX)}
    special |= dict.fromkeys([(2, 4), (2, 5), (3, 4)], Bond(Level.PHB))

    node = make_node(6, lambda a, b: special.get((a, b), Bond(Level.SYS)))

    assert node.pick(200) == [2, 3]


def test_a_mixed_set_says_which_links_it_has() -> None:
    assert grant(six().ask(300)).why == (
        "best linked set: PIX in 1 pair, PHB in 2 pairs, NUMA nodes unknown"
    )


def test_too_few_free_gpus_are_counted() -> None:
    node = six().occupy({0: 100, 1: (1, 1)})

    assert str(refusal(node.ask(500))) == "no free GPU: 5 whole GPUs asked; 4 of 6 are free"
    assert str(refusal(node.ask(700))) == (
        "larger than any GPU here: 7 whole GPUs asked; this machine has 6"
    )


def test_more_gpus_than_can_be_searched_exactly_still_get_linked_sets() -> None:
    """GPUs on NVSwitches of 8, two NUMA nodes each."""

    def bond(a: int, b: int) -> Bond:
        return Bond(Level.SYS, 18 if a // 8 == b // 8 else 0)

    node = make_node(24, bond, numa=[index // 4 for index in range(24)])

    assert node.pick(400) == [0, 1, 2, 3]
    assert node.pick(800) == list(range(8))
    assert node.occupy({0: 100}).pick(800) == list(range(8, 16))
    assert node.pick(2400) == list(range(24))
    assert len(make_node(48, bond).pick(2000) or []) == 20


def test_among_many_gpus_on_one_switch_those_of_one_numa_node_are_taken() -> None:
    node = make_node(24, lambda *_: Bond(Level.SYS, 18), numa=[index % 3 for index in range(24)])

    assert node.pick(400) == [0, 3, 6, 9]
