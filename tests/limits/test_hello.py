"""The protocol as values: what is a HELLO, what is not, what is not yet."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.limits.socket.protocol import (
    PREFACE,
    Hello,
    HelloRefused,
    Http2,
    parse_hello,
    refusal,
    welcome,
)
from tests.limits.programs.hello_client import HELLO_SIZE, OBSERVER, hello
from vcuda_shim._shim import lib


def test_a_good_hello_says_who_the_caller_thinks_it_is() -> None:
    assert parse_hello(hello(pid=42)) == Hello(observer=False, measure=False, pid=42)
    assert parse_hello(OBSERVER).observer  # type: ignore[union-attr]


def test_a_hello_cut_short_is_waited_for() -> None:
    assert {parse_hello(hello()[:length]) for length in range(HELLO_SIZE)} == {None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "shim: protocol 2, message 1, layout 3; manager: protocol 1, "),
        ({"region_abi": 9}, "layout 9; manager: protocol 1, message 1, layout 3"),
        ({"kind": 7}, "message 7"),
    ],
)
def test_another_version_is_refused_with_both_versions(
    changes: dict[str, int], reason: str
) -> None:
    refused = parse_hello(hello(**changes))

    assert isinstance(refused, HelloRefused)
    assert refused.number == errno.EPROTO
    assert reason in refused.reason
    assert len(refused.reason) < lib.VCUDA_REASON_SIZE


def test_another_protocol_is_known_by_its_first_byte() -> None:
    assert isinstance(parse_hello(b"GET / HTTP/1.1\r\n"), HelloRefused)
    assert isinstance(parse_hello(b"\0"), HelloRefused)


def test_who_begins_with_http2_s_preface_speaks_http2_and_no_sooner() -> None:
    assert parse_hello(PREFACE + b"more") == Http2(PREFACE + b"more")
    assert all(parse_hello(PREFACE[:end]) is None for end in range(len(PREFACE)))


@given(st.binary(max_size=HELLO_SIZE))
def test_any_bytes_have_an_answer(received: bytes) -> None:
    answer = parse_hello(received)
    assert answer is None or isinstance(answer, HelloRefused | Hello | Http2)


@given(st.binary(min_size=HELLO_SIZE - 16, max_size=HELLO_SIZE - 16))
def test_any_words_behind_a_good_head_have_an_answer(tail: bytes) -> None:
    assert isinstance(parse_hello(hello()[:16] + tail), Hello)


def test_a_reason_too_long_for_its_field_is_cut() -> None:
    message = refusal(HelloRefused(errno.ENOSPC, "x" * 500))

    assert len(message) == len(welcome(0))
    assert message.count(b"x") == lib.VCUDA_REASON_SIZE - 1
