"""What an image will take, read by the shim before and by the simulated driver at loading: two
readers that know nothing of each other, and must agree."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_shim import _sim
from vcuda_shim._shim import lib as shim

WIDTHS = {"b8": 1, "u16": 2, "f16": 2, "s32": 4, "f32": 4, "b64": 8, "f64": 8, "b128": 16}
LANES = {"": 1, ".v2 ": 2, ".v4 ": 4}
PREFIXES = ["", ".visible ", ".extern ", "\n\t"]
KERNEL = ".visible .entry k(.param .u64 .ptr .global .align 1 p) { ld.global.u32 %r1, [%rd1]; }"

declarations = st.tuples(
    st.sampled_from([".global", ".const"]),
    st.sampled_from(PREFIXES),
    st.sampled_from(sorted(LANES)),
    st.sampled_from(sorted(WIDTHS)),
    st.lists(st.integers(1, 5000), max_size=2),
    st.sampled_from(["", " = {1, 2}"]),
)
Declaration = tuple[str, str, str, str, list[int], str]


def variable_bytes(image: bytes) -> tuple[int, int]:
    """As the simulator and as the shim have it."""
    image += b"\0"
    return _sim.lib.image_sizes(image).variables, shim.image_bytes(image)


@given(st.lists(declarations, max_size=6))
def test_the_variables_of_a_text_are_their_declared_sizes(variables: list[Declaration]) -> None:
    lines = [
        f"{prefix}{space} .align 8 {lanes}.{kind} v{at}{''.join(f'[{n}]' for n in sizes)}{value};"
        for at, (space, prefix, lanes, kind, sizes, value) in enumerate(variables)
    ]
    wanted = sum(
        LANES[lanes] * WIDTHS[kind] * math.prod(sizes) for _, _, lanes, kind, sizes, _ in variables
    )

    text = "\n".join((".version 8.0", *lines, KERNEL)).encode()

    assert variable_bytes(text) == (wanted, wanted)


sections = st.tuples(
    st.sampled_from([b".text.k", b".nv.global", b".nv.constant0", b".nv.shared.k", b".debug"]),
    st.sampled_from([1, 8]),  # SHT_PROGBITS, SHT_NOBITS
    st.booleans(),  # SHF_ALLOC
    st.integers(0, 1 << 40),
)


def cubin(parts: list[tuple[bytes, int, bool, int]]) -> bytes:
    names = b"\0" + b"\0".join(name for name, *_ in parts) + b"\0"
    table = 64 + len(names)
    count = len(parts) + 1
    numbers = (2, 190, 1, 0, 0, table, 0, 64, 0, 0, 64, count, 0xFFFF if count == 1 else count - 1)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", *numbers)
    rows = [
        struct.pack("<IIQQQQIIQQ", names.index(name), kind, 2 * alloc, 0, 0, size, 0, 0, 1, 0)
        for name, kind, alloc, size in parts
    ]
    return head + names + b"".join(rows) + struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, 0, 0, 0, 1, 0)


@given(st.lists(sections, min_size=1, max_size=8))
def test_a_cubin_takes_its_allocated_sections_but_for_memory_on_the_chip(
    parts: list[tuple[bytes, int, bool, int]],
) -> None:
    taken = [part for part in parts if part[2] and not part[0].startswith(b".nv.shared")]
    image = cubin(parts)

    sizes = _sim.lib.image_sizes(image)

    assert sizes.variables == sum(size for _, kind, _, size in taken if kind == 8)
    assert sizes.code == sum(size for _, kind, _, size in taken if kind == 1)
    assert shim.image_bytes(image) == sum(part[3] for part in taken)


@given(st.lists(sections, min_size=1, max_size=8))
def test_the_estimate_is_never_less_than_the_simulated_driver_takes(
    parts: list[tuple[bytes, int, bool, int]],
) -> None:
    page = 64 * 1024
    for image in (cubin(parts), b".version 8.0\n.global .b8 big[100000];\n" + b" " * 70000 + b"\0"):
        sizes = _sim.lib.image_sizes(image)
        takes = -(-sizes.code // page) * page + sizes.variables

        assert takes <= shim.image_estimate(image) < takes + 3 * page


@given(st.binary(max_size=200))
def test_no_text_is_too_strange_to_be_read(rest: bytes) -> None:
    text = b".global " + rest.replace(b"\0", b"[")

    assert shim.image_bytes(text + b"\0") >= 0


@pytest.mark.parametrize("size", [2**64, 10**40, 2**63])
def test_a_size_beyond_all_numbers_is_the_largest_there_is(size: int) -> None:
    text = f".global .b64 big[{size}];".encode() + b"\0"

    assert shim.image_bytes(text) == 2**64 - 1


def test_a_fat_binary_tells_how_long_it_is_but_not_what_will_be_loaded() -> None:
    image = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 12345)

    assert shim.image_bytes(image) == 0
    assert shim.image_extent(image) == 12345
    assert _sim.lib.image_sizes(image).code == 12345


@pytest.mark.parametrize(
    "image", [b"\0", b"garbage\0", b"\x7fELF\x01" + bytes(80), b"BC\xc0\xde\0"]
)
def test_what_is_no_image_of_ours_takes_nothing_that_we_know(image: bytes) -> None:
    assert shim.image_bytes(image) == 0
