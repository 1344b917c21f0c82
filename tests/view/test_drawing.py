"""Lines for terminals of any width: aligned, never wider, without a word said by colour alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from gpumanager.units import GIB, MIB
from gpumanager.view import figures
from gpumanager.view.drawing import BAD, WARN, bar, details, heading, layout, line, summary
from gpumanager.view.figures import ASCII, UNICODE, Glyphs, glyphs
from gpumanager.view.listing import Wish, rows
from tests.view.view_world import BUSY, container, device, seen

LONG = container("a-long-namespace/with-a-pod-whose-name-is-long-7d9f:and-a-container", device(1))
UNLIMITED: dict[tuple[str, ...], int] = {
    ("web", "answers", "main", "entry"): 1,
    ("team", "train-0", "", "session"): 2,
}
NODE = seen(*BUSY, LONG, gpus=3, unlimited=UNLIMITED)


def plain(pieces: list[tuple[str, str]]) -> str:
    return "".join(text for text, _ in pieces)


def styles(text: Text) -> dict[str, object]:
    """The style of each piece of a line."""
    return {text.plain[one.start : one.end].strip(): one.style for one in text.spans}


def drawn(width: int, signs: Glyphs = UNICODE, wish: Wish | None = None) -> list[str]:
    columns = layout(width)
    listed = [line(row, columns, signs) for row in rows([NODE], wish or Wish())]
    return [one.plain for one in (heading(columns, signs), *listed)]


@given(st.integers(18, 300), st.sampled_from([ASCII, UNICODE]), st.sampled_from([True, False]))
def test_every_line_has_the_same_width_and_fits(width: int, signs: Glyphs, flat: object) -> None:
    lines = drawn(width, signs, Wish(flat=bool(flat)))

    assert len({len(one) for one in lines}) == 1
    assert len(lines[0]) <= width


@pytest.mark.parametrize(
    ("width", "there", "missing"),
    [
        (120, ["PEAK", "PROC", "CEIL", "THR", "REF", "SHARE of granted"], []),
        (80, ["CEIL", "THR", "REF", "MEMORY of limit"], ["PEAK", "PROC"]),
        (60, ["MEMORY", "SHARE", "CEIL", "THR", "REF"], ["of limit", "PEAK"]),
        (40, ["MEMORY", "SHARE", "REF"], ["CEIL", "THR"]),
    ],
)
def test_a_narrow_terminal_has_fewer_columns(
    width: int, there: list[str], missing: list[str]
) -> None:
    title, *_ = drawn(width)

    assert [word for word in there if word not in title] == []
    assert [word for word in missing if word in title] == []


@pytest.mark.parametrize(("width", "sign"), [(80, " NO LIMIT "), (34, " ! ")])
def test_a_container_with_processes_without_limits_is_marked(width: int, sign: str) -> None:
    marked = [text for text in drawn(width) if sign in text]

    assert len(marked) == len(UNLIMITED)


def test_the_details_of_a_container_say_why_no_limit_holds() -> None:
    containers = {one.container.pod: one for one in rows([NODE], Wish()) if one.container}

    (told,) = (text for text in details(containers["train-0"]) if text.startswith("limits  "))

    assert told == (
        "limits    No limit holds for 2 processes. Each found another driver library than the one "
        "with the shim. What to do: runbook GpuManagerContainerUnlimited, 'session'."
    )


def test_figures_stand_under_each_other() -> None:
    title, gpu, train, answers, *_ = drawn(80)

    for name in ("THR", "REF"):
        end = title.index(name) + len(name)
        assert train[:end].endswith(("12s", "3"))
        assert gpu[end - 1] == " "
    assert train[: title.index(" CEIL")].rstrip().endswith("29.8/30%")
    assert "≤60" in answers


def test_ascii_is_ascii() -> None:
    assert all(one.isascii() for one in drawn(100, ASCII))
    assert summary([NODE], ASCII).isascii()


def test_used_promised_and_free_differ_without_colours() -> None:
    shown = plain(bar(10, 0.25, 0.6, ASCII))

    assert shown == "###===...."
    assert plain(bar(10, 0.25, 0.6, UNICODE)) == "██▌░░░····"


@given(st.floats(-1, 3), st.floats(-1, 3), st.integers(0, 60))
def test_a_bar_is_as_wide_as_its_column(used: float, promised: float, width: int) -> None:
    assert len(plain(bar(width, used, promised, UNICODE))) == width
    assert len(plain(bar(width, used, promised, ASCII))) == width


def test_what_nears_its_limit_or_grows_is_marked() -> None:
    listed = rows([NODE], Wish())
    row = next(row for row in listed if row.container and row.container.pod == "train-0")
    assert row.container
    assert row.device

    marked = styles(line(row, layout(80), UNICODE, replace(row.device, memory_refusals=2)))
    quiet = styles(line(row, layout(80), UNICODE, row.device))

    assert (marked["3.9/4.0G"], marked["3"], quiet["3"]) == (WARN, BAD, WARN)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.of_bytes(12 * GIB, 40 * GIB), "12/40G"),
        (figures.of_bytes(GIB / 2, GIB), "0.5/1.0G"),
        (figures.of_bytes(0, 512 * MIB), "0/512M"),
        (figures.of_bytes(None, 40 * GIB), "-/40G"),
        (figures.of_percent(29.84, 30), "29.8/30%"),
        (figures.of_percent(99.97, 100), "100/100%"),
        (figures.of_percent(12.3, 100), "12/100%"),
        (figures.of_percent(0, 30), "0/30%"),
        (figures.of_percent(None, 30), "-/30%"),
        (figures.seconds(0), "0"),
        (figures.seconds(0.0121), "12ms"),
        (figures.seconds(1.234), "1.2s"),
        (figures.seconds(59), "59s"),
        (figures.seconds(720), "12m"),
        (figures.seconds(90000), "1d"),
        (figures.count(1234), "1234"),
        (figures.count(12345), "12k"),
        (figures.count(3.2e6), "3M"),
        (figures.cut("default/a-long-name:main", 12, UNICODE), "default/…ain"),
        (figures.cut("short", 12, UNICODE), "short"),
    ],
)
def test_figures_are_short(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("environment", "encoding", "signs"),
    [
        ({}, "utf-8", UNICODE),
        ({"LANG": "de_DE.UTF-8"}, "utf-8", UNICODE),
        ({"LANG": "C.utf8"}, "utf-8", UNICODE),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", ASCII),
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, "utf-8", UNICODE),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, "utf-8", ASCII),
        ({"LANG": "de_DE.UTF-8"}, "ascii", ASCII),
        ({"LANG": "de_DE.ISO-8859-1"}, "iso8859-1", ASCII),
    ],
)
def test_the_locale_says_which_characters_there_are(
    environment: dict[str, str], encoding: str, signs: Glyphs
) -> None:
    assert glyphs(environment, encoding) is signs
