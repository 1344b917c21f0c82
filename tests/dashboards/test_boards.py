"""Dashboards ask for what there is, and are laid out without gaps."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.dashboards.chart_files import asked, boards, metrics, panels
from tests.dashboards.promql import Reader

BUILT_IN = {"datasource", "__url_time_range"}
UNITS = {"short", "percent", "percentunit", "bytes", "s", "ops", "reqps", "celsius", "watt"}

EACH = pytest.mark.parametrize("board", boards().values(), ids=boards().keys())


@EACH
def test_panels_fill_their_rows_and_do_not_overlap(board: Mapping[str, Any]) -> None:
    taken = set[tuple[int, int]]()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells
        taken |= cells

    deepest = max(y for _, y in taken) + 1
    assert taken == {(x, y) for x in range(24) for y in range(deepest)}


@EACH
def test_every_panel_has_a_number_of_its_own_and_says_what_it_shows(
    board: Mapping[str, Any],
) -> None:
    every = list(panels(board))

    assert len({one["id"] for one in every}) == len(every)
    for panel in every:
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            assert panel["targets"]
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


@EACH
def test_every_query_goes_to_the_chosen_source(board: Mapping[str, Any]) -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}

    assert board["templating"]["list"][0]["type"] == "datasource"
    for panel in panels(board):
        if panel["type"] != "row":
            assert panel["datasource"] == source
        for target in panel.get("targets", ()):
            assert target["datasource"] == source


@EACH
def test_variables_are_those_that_are_used(board: Mapping[str, Any]) -> None:
    defined = {one["name"] for one in board["templating"]["list"]}
    queries = [one["query"]["query"] for one in board["templating"]["list"][1:]]
    texts = [target["expr"] for panel in panels(board) for target in panel.get("targets", ())]

    assert set(re.findall(r"\$(\w+)", "\n".join(texts + queries))) == defined - {"datasource"}


def test_links_lead_to_dashboards_and_variables_that_there_are() -> None:
    variables = {
        one["uid"]: {variable["name"] for variable in one["templating"]["list"]}
        for one in boards().values()
    }
    urls = [
        link["url"]
        for board in boards().values()
        for panel in panels(board)
        for override in panel.get("fieldConfig", {}).get("overrides", ())
        for each in override["properties"]
        if each["id"] == "links"
        for link in each["value"]
    ]

    assert urls
    for url in urls:
        (uid,) = re.findall(r"^/d/([\w-]+)\?", url)
        assert set(re.findall(r"var-(\w+)=", url)) <= variables[uid]


def test_a_query_asks_for_what_there_is_and_is_shown_by_labels_that_it_has(
    subtests: pytest.Subtests,
) -> None:
    pytest.importorskip("promql_parser")
    reader = Reader(metrics())
    for one in asked():
        with subtests.test(one.where):
            labels = reader.labels(one.expr)
            assert labels is not None
            assert set(re.findall(r"{{(\w+)}}", one.legend)) <= labels
            if one.panel["type"] == "table":
                (order,) = (
                    step["options"]["indexByName"]
                    for step in one.panel["transformations"]
                    if step["id"] == "organize"
                )
                assert labels == {name for name in order if not name.startswith("Value #")}


def test_queries_of_variables_ask_for_what_there_is() -> None:
    pytest.importorskip("promql_parser")
    for board in boards().values():
        for variable in board["templating"]["list"][1:]:
            query = variable["query"]["query"]
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()  # type: ignore[union-attr]

            assert label in (Reader(metrics()).labels(selector) or ())
