"""What the annotations of a node wish, and that one that says nothing wishes nothing."""

from typing import Any

import pytest

from gpumanager.node_status.wishes import NodeWishes


def node(**annotations: str) -> Any:
    named = {f"tencent.com/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return {"metadata": {"name": "n1", "annotations": named}}


@pytest.mark.parametrize(
    ("text", "gpus"), [("3", 3), ("0", 0), ("", 1), ("-1", 1), ("two", 1), ("\u0663", 1)]
)
def test_a_number_of_gpus_for_claims_is_a_number_or_the_flag_s(text: str, gpus: int) -> None:
    wishes = NodeWishes(1, lambda _: None)
    assert wishes.claims_gpus is None

    wishes.read(node(claims_gpus=text))

    assert wishes.claims_gpus == gpus


def test_a_fixed_number_holds_whatever_the_node_says() -> None:
    wishes = NodeWishes(7, lambda _: None, fixed=True)

    wishes.read(node(claims_gpus="3"))

    assert wishes.claims_gpus == 7


def test_a_cordon_is_told_once_and_ends_with_the_annotation_or_the_node() -> None:
    told: list[str] = []
    wishes = NodeWishes(1, told.append)

    wishes.read(node(gpu_cordon="GPU-1"))
    wishes.read(node(gpu_cordon="GPU-1", other="x"))
    wishes.read(node())
    wishes.read(node(gpu_cordon="*"))
    wishes.read(None)

    assert told == ["GPU-1", "", "*", ""]


def test_that_nothing_is_cordoned_is_told_too() -> None:
    """Until it is, a slice keeps the taints of the agent before this one."""
    told: list[str] = []
    wishes = NodeWishes(1, told.append)

    wishes.read(node())
    wishes.read(node(other="x"))

    assert told == [""]
