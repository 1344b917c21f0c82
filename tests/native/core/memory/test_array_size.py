"""The bound on an array's size: never less than its elements take, never wrapped around."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.programs.array_words import (
    BC1,
    BC7,
    BITS,
    CHANNELS,
    CUBEMAP,
    DEFERRED,
    FLOAT,
    LAYERED,
    NV12,
    SPARSE,
)
from vcuda_shim._shim import ffi, lib

PAGE = 65536
MOST = 2**64 - 1
WORD = st.integers(0, MOST)
EXTENT = st.integers(1, 5000)


def size(
    width: int, height: int = 0, depth: int = 0, *, kind: int = 1, channels: int = 1,
    flags: int = 0, levels: int = 1,
) -> int:  # fmt: skip
    shape = ffi.new("struct array_shape *", [width, height, depth, kind, channels, flags, levels])
    return int(lib.array_size(shape))


def test_whole_blocks_of_every_documented_format_take_exactly_their_elements() -> None:
    found = {kind: size(4096, 2048, kind=kind, channels=CHANNELS.get(kind, 1)) for kind in BITS}

    assert found == {kind: 4096 * 2048 * bits // 8 for kind, bits in BITS.items()}


@pytest.mark.parametrize(
    ("extents", "how", "bytes_needed"),
    [
        ((1,), {}, PAGE),
        ((32768,), {"kind": FLOAT, "channels": 4}, 32768 * 16 * 8),  # one row of tiles of 8
        ((512, 257), {}, 512 * 512),  # blocks of 256 rows
        ((512, 9), {}, PAGE),
        ((512, 256, 33), {}, 512 * 256 * 64),  # blocks of 32 slices
        ((512, 256, 33), {"flags": LAYERED}, 512 * 256 * 33),
        ((512, 512, 6), {"flags": CUBEMAP}, 512 * 512 * 6),
        ((2048, 1024), {"kind": BC1}, 2048 * 1024 // 2),
        ((2048, 1024), {"kind": BC7}, 2048 * 1024),
        ((1024, 512), {"kind": NV12, "channels": 3}, 1024 * 512 * 3 // 2),
        ((1024, 512), {"kind": 9999}, 1024 * 512 * 16),  # a format of the future
        ((4096, 4096), {"levels": 2}, 4096 * 4096 + 2048 * 2048),
        ((4096, 4096), {"flags": SPARSE}, 0),
        ((4096, 4096), {"flags": DEFERRED}, 0),
    ],
)
def test_the_bound_is_what_the_rule_says(
    extents: tuple[int, ...], how: dict[str, int], bytes_needed: int
) -> None:
    assert size(*extents, **how) == bytes_needed


@given(
    extents=st.tuples(EXTENT, st.integers(0, 5000), st.integers(0, 64)),
    kind=st.sampled_from(sorted(BITS)),
    flags=st.sampled_from([0, LAYERED]),
)
def test_an_array_is_never_charged_less_than_its_elements(
    extents: tuple[int, int, int], kind: int, flags: int
) -> None:
    width, height, depth = extents
    elements = width * max(height, 1) * max(depth, 1)

    bound = size(*extents, kind=kind, channels=CHANNELS.get(kind, 1), flags=flags)

    assert bound % PAGE == 0
    assert 8 * bound >= elements * BITS[kind]


@given(
    extents=st.tuples(EXTENT, EXTENT, st.integers(0, 64)),
    kind=st.sampled_from(sorted(BITS)),
    levels=st.integers(1, 12),
)
def test_a_further_level_never_makes_it_less_and_never_more_than_the_first(
    extents: tuple[int, int, int], kind: int, levels: int
) -> None:
    first, fewer, more = (size(*extents, kind=kind, levels=n) for n in (1, levels, levels + 1))

    assert fewer <= more <= fewer + first


@given(
    extents=st.tuples(WORD, WORD, WORD),
    numbers=st.tuples(*[st.integers(0, 2**32 - 1)] * 4),
)
def test_no_descriptor_wraps_around_or_takes_long(
    extents: tuple[int, int, int], numbers: tuple[int, int, int, int]
) -> None:
    kind, channels, flags, levels = numbers
    extent = max(extents)

    bound = size(*extents, kind=kind, channels=channels or 1, flags=flags & 7, levels=levels)

    assert bound == MOST or bound % PAGE == 0
    assert 2 * bound >= min(extent, MOST)  # a compressed element takes half a byte at least
