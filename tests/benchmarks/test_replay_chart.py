"""The drawing of a replay."""

import re

from replay_chart import chart


def test_what_is_low_is_drawn_too() -> None:
    drawn = chart({"low": [(30.0, 30.0), (130.0, 41.0)], "lower": [(30.0, 30.0), (130.0, 40.5)]})

    heights = [float(y) for y in re.findall(r"d='M596 ([0-9.]+)h10'", drawn)]
    assert drawn.count("stroke-width='1.8'") == 2
    assert len(heights) == 2
    assert all(40 <= height <= 376 for height in heights)
    assert heights[1] - heights[0] >= 15


def test_names_do_not_leave_the_page() -> None:
    drawn = chart({f"p{number}": [(90.0, 80.0), (130.0, 80.0)] for number in range(10)})

    heights = [float(y) for y in re.findall(r"d='M596 ([0-9.]+)h10'", drawn)]
    assert len(heights) == 10
    assert max(heights) <= 376
    assert sorted(set(heights)) == heights


def test_a_drawing_has_a_line_and_a_name_for_each_policy() -> None:
    drawn = chart({"a<b": [(90.0, 89.0), (130.0, 95.0)], "c": [(90.0, 88.0), (130.0, 91.0)]})

    assert drawn.startswith("<svg")
    assert "a&lt;b 95.0" in drawn
    assert drawn.count("stroke-width='1.8'") == 2
