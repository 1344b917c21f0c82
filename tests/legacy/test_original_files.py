"""The bytes that vcuda-controller reads."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.values import GpuUUID
from gpumanager.legacy.files import (
    MAX_PIDS,
    LegacyConfig,
    NotOriginal,
    decode_config,
    decode_pids,
    driver_numbers,
    encode_config,
    encode_pids,
    names_directory,
    original_config,
)
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes

UID = "7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21"
SHARE = LegacyConfig(UID, "main", Bytes(3 * GIB), cores=30, ceiling=0, driver=(470, 82))


def limit(cores: int, ceiling: int, memory: int = GIB) -> Limit:
    gpu = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0")
    return Limit(gpu, Bytes(memory), cores, ceiling)


def at(content: bytes, offset: int, form: str) -> object:
    return struct.unpack_from(f"={form}", content, offset)[0]


def test_every_field_lies_where_the_original_reads_it() -> None:
    content = encode_config(SHARE)

    assert len(content) == 8240
    assert content[:48] == UID.encode() + bytes(48 - len(UID))
    assert at(content, 48, "i") == 0
    assert content[52:4096] == bytes(4044)
    assert content[4096:8192] == b"main" + bytes(4092)
    assert content[8192:8208] == bytes(16)
    assert at(content, 8208, "Q") == 3 * GIB
    assert [at(content, 8216 + 4 * i, "i") for i in range(6)] == [30, 1, 470, 82, 1, 0]


def test_a_share_that_may_burst_has_a_soft_limit() -> None:
    config = original_config(UID, "main", [limit(30, 60)], (0, 0))

    content = encode_config(config)

    assert at(content, 48, "i") == 60
    assert at(content, 8220, "i") == 0


def test_a_whole_gpu_is_not_limited() -> None:
    content = encode_config(original_config(UID, "main", [limit(100, 100)] * 2, (0, 0)))

    assert at(content, 8216, "i") == 200
    assert at(content, 8232, "i") == 0


def test_names_that_are_too_long_are_cut_and_ended() -> None:
    content = encode_config(LegacyConfig("u" * 60, "n" * 5000, Bytes(1), 1, 0))

    assert content[:48] == b"u" * 47 + b"\0"
    assert content[8190:8192] == b"n\0"


TEXT = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=47)


@given(
    st.builds(
        LegacyConfig,
        pod_uid=TEXT,
        container=TEXT,
        memory=st.integers(0, 2**63).map(Bytes),
        cores=st.integers(1, 1600),
        ceiling=st.integers(0, 1600),
        driver=st.tuples(st.integers(0, 999), st.integers(0, 999)),
    )
)
def test_what_is_written_is_read_again(config: LegacyConfig) -> None:
    assert decode_config(encode_config(config)) == config


@pytest.mark.parametrize("content", [b"", bytes(8239), bytes(8241)])
def test_a_file_of_another_size_is_none_of_the_original_s(content: bytes) -> None:
    with pytest.raises(NotOriginal):
        decode_config(content)


def test_pids_are_ascending_and_no_more_than_the_original_reads() -> None:
    assert encode_pids([30, 7, 30]) == struct.pack("=ii", 7, 30)
    assert len(decode_pids(encode_pids(range(1, 5000)))) == MAX_PIDS


def test_half_a_pid_is_left_out() -> None:
    assert decode_pids(encode_pids([7, 30])[:-1]) == (7,)


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("470.82", (470, 82)), ("555.58.02", (555, 58)), ("", (0, 0)), ("beta", (0, 0))],
)
def test_the_driver_s_version_in_two_numbers(version: str, numbers: tuple[int, int]) -> None:
    assert driver_numbers(version) == numbers


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("a" * 64, True),
        ("main", True),
        ("", False),
        (".", False),
        ("..", False),
        ("../other", False),
        ("/etc", False),
        (".books.new", False),
        ("books", False),
        ("config", False),
        ("vcuda.sock", False),
        ("pids.config", False),
        ("a" * 129, False),
    ],
)
def test_only_a_plain_name_becomes_a_directory_and_none_of_ours(name: str, good: object) -> None:
    assert names_directory(name) is good
