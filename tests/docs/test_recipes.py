"""The sums of docs/recipes.md are right: blocks and GiB, weights, the KV cache."""

import re

import pytest

from gpumanager.units import GIB, MEMORY_BLOCK, MIB
from tests.docs.pages import DOCS

PAGE = (DOCS / "recipes.md").read_text()
PER_GIB = GIB // MEMORY_BLOCK


def test_blocks_are_as_many_gib_as_is_said() -> None:
    told = re.findall(r"(\d+) blocks(?:\*\*)? \((\d+) GiB\)", PAGE)
    told += re.findall(r"vcuda-memory: (\d+) +# (\d+) GiB", PAGE)

    assert len(told) >= 9
    assert [(blocks, gib) for blocks, gib in told if int(blocks) != PER_GIB * int(gib)] == []


@pytest.mark.parametrize(
    ("model", "parameters", "bytes_of_one"),
    [("1B, bf16", 1e9, 2), ("7B, 4 bits", 7e9, 0.5), ("7B, int8", 7e9, 1), ("7B, bf16", 7e9, 2)],
)
def test_weights_are_parameters_times_their_bytes(
    model: str, parameters: float, bytes_of_one: float
) -> None:
    told = re.findall(rf"\| {model} \| ([0-9.]+) GiB", PAGE)

    assert told == [f"{parameters * bytes_of_one / GIB:.1f}"]


def test_the_kv_cache_of_the_example_is_its_product() -> None:
    factors = re.findall(r"2 . (\d+) layers . (\d+) heads . (\d+) . 2 bytes = (\d+) KiB", PAGE)
    ((layers, heads, size, told),) = (map(int, one) for one in factors)

    assert 2 * layers * heads * size * 2 == told << 10
    assert (told << 10) * 8192 == 4 * GIB
    assert "so 4 GiB for 8,192 tokens" in PAGE


def test_room_for_the_context_is_as_the_rule_says() -> None:
    """Utilisation at most 1 less the context's part of the limit: 0.5 GiB of 20, and of 4."""
    context = 512 * MIB

    assert f"{1 - context / (20 * GIB):.3f}" == "0.975"
    assert "that is 0.97, so 0.90 is fine" in PAGE
    assert f"{1 - context / (4 * GIB):.3f}" == "0.875"
    assert "it is 0.87, and the\ndefault fails" in PAGE
