"""Verdicts, their rows and drawings, on runs made by hand."""

import re
from xml.etree import ElementTree as ET

import pytest
from compute import drawing, report
from compute.cases import PATTERNS, Actor, Bars, Case, Phase, actor, steady
from compute.judge import Verdict, judge

WHOLE = (100.0, 100.0)


def verdict(busy: list[float], *, able: tuple[float, float] = WHOLE, cores: int = 30) -> Verdict:
    case = steady("some/case", actor("a", cores, "1ms"))
    (found,) = judge(case, {"a": busy}, {"a": {"gap_p99_us": 2500.0}}, {"a": able})
    return found


EXACT = [0.03] * 100


def test_a_tenant_that_gets_its_promise_meets_all_bars() -> None:
    found = verdict(EXACT)

    assert found.missed == ()
    assert (found.mean, found.delivered) == pytest.approx((0, 100))
    assert (found.settled, found.gap_ms, found.window) == (0.0, 2.5, 1.0)


def test_what_happens_in_the_first_two_seconds_is_not_the_errors_affair() -> None:
    found = verdict([0.1] * 15 + [0.03] * 85)

    assert found.mean == pytest.approx(0)
    assert found.settled == pytest.approx(1.5)
    assert found.missed == ("settled",)


def test_too_much_misses_the_error_and_too_little_the_delivery_as_well() -> None:
    assert verdict([0.035] * 100).missed == ("error", "settled")
    assert verdict([0.025] * 100).missed == ("error", "delivered", "settled")


def test_who_cannot_take_the_promise_even_alone_is_due_what_it_can_take() -> None:
    found = verdict([0.02] * 100, able=(20.0, 20.0))

    assert found.missed == ()
    assert found.tenants["a"].due == 20.0


def test_where_it_took_another_part_alone_each_time_errors_count_from_that_range() -> None:
    inside = verdict([0.022] * 100, able=(20.0, 25.0))
    above, below = verdict([0.027] * 100, able=(20.0, 25.0)), verdict([0.018] * 100, able=(20, 25))

    assert (inside.missed, inside.mean) == ((), 0)
    assert (above.worst, below.worst) == pytest.approx((2, -2))
    assert above.missed == ("error", "settled")
    assert " 20-25 " in report.row(inside)


def test_a_case_is_as_good_as_its_worst_tenant() -> None:
    case = steady("two", actor("a", 30, "1ms"), actor("b", 70, "1ms"))
    busy = {"a": EXACT, "b": [0.056] * 100}
    reports: dict[str, dict[str, float]] = {"a": {"gap_p99_us": 1}, "b": {"gap_p99_us": 9000}}

    (found,) = judge(case, busy, reports, {"a": WHOLE, "b": WHOLE})

    assert found.mean == pytest.approx(7)
    assert found.worst == pytest.approx(-14)
    assert found.delivered == pytest.approx(80)
    assert found.settled is None
    assert found.gap_ms == 9
    assert found.fairness == pytest.approx(1.8**2 / (2 * (1 + 0.8**2)))


@pytest.mark.parametrize(
    ("got", "due", "missed"),
    [
        ((0.03, 0.068), (67.2, 70), ()),
        ((0.03, 0.062), (67.2, 70), ("error", "delivered", "settled")),
        ((0.03, 0.074), (67.2, 70), ("error", "settled")),
        ((0.027, 0.07), (67.2, 70), ("error", "delivered", "settled")),
    ],
)
def test_who_is_woken_after_each_launch_is_due_that_part_of_what_its_neighbours_leave(
    got: tuple[float, float], due: tuple[float, float], missed: tuple[str, ...]
) -> None:
    """The second takes 96 % alone: the host has the rest. Of 70 that is 67.2; of the first's 30,
    which may not be less whatever the host does to its neighbour, nothing is taken off."""
    case = steady("two", actor("a", 30, "1ms"), actor("b", 70, "1ms", "sync"))
    busy = {name: [share] * 100 for name, share in zip("ab", got, strict=True)}

    able = {"a": WHOLE, "b": (96.0, 97.0)}
    (found,) = judge(case, busy, {"a": {}, "b": {}}, able, ["b"])

    assert (found.tenants["b"].due, found.tenants["b"].most) == pytest.approx(due)
    assert found.tenants["a"].due == 30
    assert found.missed == missed


def test_who_may_borrow_leaves_the_woken_what_is_promised_to_it_and_no_more() -> None:
    """30 and 60 of 100: the borrower may have the ten besides. Of 60 it takes 96 %."""
    lender = actor("b", 60, "1ms", "sync")
    busy = {"a": [0.04] * 100, "b": [0.058] * 100}
    dues = []
    for ceiling in (None, 90):
        case = steady("two", actor("a", 30, "1ms", ceiling=ceiling), lender)
        able = {"a": WHOLE, "b": (96.0, 96.0)}
        (found,) = judge(case, busy, {"a": {}, "b": {}}, able, ["b"])
        dues.append(found.tenants["b"].due)

    assert dues == pytest.approx([60, 57.6])


@pytest.mark.parametrize(
    ("able", "lost", "due"),
    [
        (WHOLE, 10.0, (27, 63)),
        (WHOLE, 0.0, (30, 70)),
        ((50.0, 50.0), 10.0, (30, 50)),  # 80 are wanted, and 90 are left
    ],
)
def test_what_switches_cost_is_taken_off_all_promises_alike(
    able: tuple[float, float], lost: float, due: tuple[float, float]
) -> None:
    case = steady("two", actor("a", 30, "1ms"), actor("b", 70, "1ms"))
    busy = {"a": [due[0] / 1000] * 100, "b": [due[1] / 1000] * 100}
    switches = [0.1] * 20 + [lost / 1000] * 80  # the first two seconds are not judged

    (found,) = judge(case, busy, {"a": {}, "b": {}}, {"a": WHOLE, "b": able}, lost=switches)

    assert [one.due for one in found.tenants.values()] == pytest.approx(due)
    assert (found.mean, found.lost) == pytest.approx((0, lost))
    assert report.row(found, loss=True).split()[-1] == str(lost)


def test_switches_between_processes_of_a_container_that_is_alone_are_taken_off_its_promise() -> (
    None
):
    case = steady("one", actor("a", 40, "1ms", "processes"))

    (found,) = judge(case, {"a": [0.038] * 100}, {"a": {}}, {"a": WHOLE}, lost=[0.002] * 100)

    assert found.tenants["a"].due == pytest.approx(38)
    assert found.missed == ()


def test_only_a_program_that_waits_for_each_launch_is_woken_after_each() -> None:
    waiting = {pattern for pattern in PATTERNS if actor("a", 30, "1ms", pattern).waits}

    assert waiting == {"sync"}


def test_each_phase_is_judged_by_its_own_time_and_what_is_due_then() -> None:
    bars = Bars(skip=0.5)
    phases = (Phase("low", 0, 5, {"a": 20}, bars), Phase("high", 5, 10, {"a": 60}, bars))
    case = Case("step", (Actor("a", 20, "kernel=1ms", 1e-3),), 10, phases)

    low, high = judge(case, {"a": [0.02] * 50 + [0.06] * 50}, {"a": {}}, {"a": WHOLE})

    assert (low.mean, high.mean) == pytest.approx((0, 0))
    assert (low.phase, high.phase) == ("low", "high")


@pytest.mark.parametrize(("share", "settled"), [(0.08, 0.0), (0.04, 1.0)])
def test_who_needs_no_more_than_the_least_has_settled_with_more(
    share: float, settled: float
) -> None:
    bars = Bars(skip=0.5, width=0.2, least=True)
    case = Case(
        "back", (Actor("a", 60, "kernel=1ms", 1e-3),), 5, (Phase("", 0, 5, {"a": 60}, bars),)
    )

    (found,) = judge(case, {"a": [share] * 10 + [0.06] * 40}, {"a": {}}, {"a": WHOLE})

    assert found.settled == pytest.approx(settled)


def test_a_row_fits_the_page_and_has_a_star_where_a_bar_is_missed() -> None:
    good, bad = report.row(verdict(EXACT)), report.row(verdict([0.01] * 100))

    assert all(len(line) <= 100 for line in (good, bad, *report.HEADING.splitlines()))
    assert len(report.LOSS_HEADING) == len(report.HEADING)
    assert report.LOSS_HEADING.split()[-1] == "%"
    assert "*" not in good
    assert re.findall(r"(\S+)\*", bad) == ["20.0", "33.3", "never"]


def test_the_typical_round_is_the_one_in_the_middle() -> None:
    rounds = [verdict([share] * 100) for share in (0.03, 0.05, 0.04)]

    assert report.typical(rounds).mean == pytest.approx(10)
    assert "error 0.00 to 20.00" in report.spread(rounds)


def test_the_summary_names_what_missed() -> None:
    lines = "\n".join(report.summary([verdict(EXACT), verdict([0.025] * 100)]))

    assert "bars met in 1 of 2 rows" in lines
    assert "missed: some/case: error, delivered, settled" in lines


def test_a_drawing_is_a_document_with_a_line_and_a_name_for_each() -> None:
    lines = [
        drawing.Line("a <b>", [(0, 30), (10, 30)], [(0, 30), (10, 30)]),
        drawing.Line("c", [(2, 70), (5, 170)]),
    ]
    text = drawing.sheet([drawing.Panel("title", "note", lines, 10.0)] * 3, columns=2)

    root = ET.fromstring(text)
    space = {"s": "http://www.w3.org/2000/svg"}
    names = [one.text for one in root.iterfind(".//s:text", space)]
    assert names.count("a <b>") == names.count("c") == 3
    assert len(root.findall(".//s:path[@class='l0']", space)) == 6
    assert len(root.findall(".//s:path[@class='l1']", space)) == 3
    assert "prefers-color-scheme:dark" in text


def test_names_at_the_right_do_not_touch() -> None:
    placed = [y for y, _ in drawing.apart([(10, 0), (11, 1), (50, 2)], 15)]

    assert placed == [10, 25, 50]
