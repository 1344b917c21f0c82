"""Rules ask for what there is, and each alert has a page that says what to do."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from chart_files import ROOT, RUNBOOKS, alerts, asked, metrics, names_in, recorded
from exported import every
from promql import AsksForNothing, Reader

SEVERITIES = {"critical", "warning", "info"}
CASES = ROOT / "tests/dashboards/rules_test.yaml"


def by_name() -> list[Any]:
    return [pytest.param(one, id=one["alert"]) for one in alerts()]


@pytest.mark.parametrize("name", list(recorded()))
def test_a_recording_is_named_by_its_level_what_it_is_of_and_how(name: str) -> None:
    level, of, how = name.split(":")

    assert level in {"container", "namespace", "node", "node_rpc", "cluster", "verb", "endpoint",
                     "namespace_model"}  # fmt: skip
    assert of.startswith("gpumanager_")
    assert re.fullmatch(r"(ratio|count|gpus|percent|bytes|p99)(_rate5m)?", how)


def test_no_recording_is_made_for_nobody() -> None:
    pytest.importorskip("promql_parser")
    texts = [one.expr for one in asked()] + [one["expr"] for one in alerts()]
    others = [expr for name, expr in recorded().items()]
    pages = [page.read_text() for page in RUNBOOKS.glob("*.md")]

    assert recorded().keys() <= names_in("\n".join(texts + others + pages))


@pytest.mark.parametrize("alert", by_name())
def test_an_alert_asks_for_what_there_is_and_tells_of_labels_that_it_has(
    alert: Mapping[str, Any],
) -> None:
    pytest.importorskip("promql_parser")

    labels = Reader(metrics()).labels(alert["expr"])

    told = set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"])))
    assert labels is not None
    assert told <= labels


@pytest.mark.parametrize("alert", by_name())
def test_an_alert_says_how_bad_it_is_what_is_the_matter_and_where_to_read_on(
    alert: Mapping[str, Any],
) -> None:
    said = alert["annotations"]

    assert alert["labels"]["severity"] in SEVERITIES
    assert said["summary"].strip()
    assert said["description"].endswith(".")
    assert said["runbook_url"] == f"runbooks/{alert['alert']}.md"
    assert (RUNBOOKS.parent / said["runbook_url"]).is_file()


def test_every_runbook_is_an_alert_s_and_says_all_four_things() -> None:
    pages = {page.stem: page.read_text() for page in RUNBOOKS.glob("*.md") if page.stem != "README"}

    assert pages.keys() == {one["alert"] for one in alerts()}
    for name, text in pages.items():
        assert re.findall(r"^#+ (.+)$", text, re.MULTILINE) == [name, "How bad", "Look", "Do"]


def test_the_list_of_runbooks_has_each_alert_with_its_severities() -> None:
    text = (RUNBOOKS / "README.md").read_text()
    listed = dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| ([^|]+) \|", text, re.MULTILINE))

    said: dict[str, set[str]] = {}
    for one in alerts():
        said.setdefault(one["alert"], set()).add(one["labels"]["severity"])
    assert {
        name: SEVERITIES & set(re.findall(r"\w+", words)) for name, words in listed.items()
    } == said


@pytest.mark.parametrize("alert", sorted({one["alert"] for one in alerts()}))
def test_there_is_a_case_in_which_an_alert_fires_and_one_in_which_it_does_not(alert: str) -> None:
    looks = [
        look
        for case in yaml.safe_load(CASES.read_text())["tests"]
        for look in case["promql_expr_test"]
        if f'"{alert}"' in look["expr"]
    ]

    assert {bool(look["exp_samples"]) for look in looks} == {True, False}


@pytest.mark.parametrize(
    "page", [ROOT / "docs/monitoring.md", *sorted(RUNBOOKS.glob("*.md"))], ids=lambda one: one.stem
)
def test_a_page_names_no_metric_that_there_is_not(page: Any) -> None:
    assert names_in(page.read_text()) <= every().keys() | recorded().keys()


@pytest.mark.parametrize(
    ("query", "trouble"),
    [
        ("gpumanager_gpu_hapiness", "no program tells gpumanager_gpu_hapiness"),
        ('gpumanager_gpu_healthy{colour="red"}', "gpumanager_gpu_healthy has no colour"),
        ("sum by (verb) (gpumanager_gpu_healthy)", "sum has no verb"),
        ("gpumanager_gpu_healthy * gpumanager_driver_answers", "gpu"),
    ],
)
def test_a_query_that_asks_for_nothing_is_found_out(query: str, trouble: str) -> None:
    pytest.importorskip("promql_parser")

    with pytest.raises(AsksForNothing, match=trouble):
        Reader(every()).labels(query)
