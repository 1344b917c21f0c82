"""Rules ask for what there is, and each alert has a page that says what to do."""

import re

import pytest
import yaml

from gpumanager.monitor.metrics.families import FAMILIES
from tests.dashboards.chart_files import (
    ROOT,
    RUNBOOKS,
    alerts,
    asked,
    boards,
    metrics,
    names_in,
    recorded,
    rules,
)
from tests.dashboards.exported import every, series
from tests.dashboards.promql import AsksForNothing, Reader
from tests.docs.pages import blocks

SEVERITIES = {"critical", "warning", "info"}
CASES = ROOT / "tests/dashboards/rules_test.yaml"


def test_a_recording_is_named_by_its_level_what_it_is_of_and_how() -> None:
    levels = "container|namespace|node|node_rpc|cluster|verb|endpoint|namespace_model"
    how = r"(ratio|count|gpus|percent|bytes|p99)(_rate5m)?"
    form = re.compile(rf"({levels}):gpumanager_[^:]*:{how}")

    assert [name for name in recorded() if not form.fullmatch(name)] == []


def test_no_recording_is_made_for_nobody() -> None:
    pytest.importorskip("promql_parser")
    texts = [one.expr for one in asked()] + [one["expr"] for one in alerts()]
    others = [expr for name, expr in recorded().items()]
    pages = [page.read_text() for page in RUNBOOKS.glob("*.md")]

    assert recorded().keys() <= names_in("\n".join(texts + others + pages))


def test_of_a_container_prometheus_gets_what_an_alert_or_a_dashboard_reads() -> None:
    of_containers = [one for one in FAMILIES if "container" in one.labels]
    exported = {name for one in of_containers for name, _ in series(one)}
    variables = [str(one["templating"]) for one in boards().values()]
    exprs = [one.expr for one in asked()] + [one["expr"] for one in rules()] + variables
    read = {name for name in names_in("\n".join(exprs)) if name.startswith("gpumanager_container")}

    assert exported == read | {"gpumanager_claim_info"}


def test_an_alert_asks_for_what_there_is_and_tells_of_labels_that_it_has(
    subtests: pytest.Subtests,
) -> None:
    pytest.importorskip("promql_parser")
    reader = Reader(metrics())
    for alert in alerts():
        with subtests.test(alert["alert"]):
            labels = reader.labels(alert["expr"])
            told = set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"])))
            assert labels is not None
            assert told <= labels


def test_an_alert_says_how_bad_it_is_what_is_the_matter_and_where_to_read_on(
    subtests: pytest.Subtests,
) -> None:
    for alert in alerts():
        with subtests.test(alert["alert"]):
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


def test_a_query_of_a_runbook_asks_for_what_there_is(subtests: pytest.Subtests) -> None:
    pytest.importorskip("promql_parser")
    reader = Reader(metrics())
    shown = [block for page in RUNBOOKS.glob("*.md") for block in blocks(page)]
    queries = [block for block in shown if block.language == "promql"]

    assert len(queries) >= 5
    for block in queries:
        for query in block.text.splitlines():
            with subtests.test(block.place, query=query):
                assert reader.labels(query) is not None


def test_the_list_of_runbooks_has_each_alert_with_its_severities() -> None:
    text = (RUNBOOKS / "README.md").read_text()
    listed = dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| ([^|]+) \|", text, re.MULTILINE))

    said: dict[str, set[str]] = {}
    for one in alerts():
        said.setdefault(one["alert"], set()).add(one["labels"]["severity"])
    assert {
        name: SEVERITIES & set(re.findall(r"\w+", words)) for name, words in listed.items()
    } == said


def test_there_is_a_case_in_which_an_alert_fires_and_one_in_which_it_does_not() -> None:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    looks = [look for case in cases for look in case["promql_expr_test"]]

    outcomes = {
        one["alert"]: {
            bool(look["exp_samples"]) for look in looks if f'"{one["alert"]}"' in look["expr"]
        }
        for one in alerts()
    }
    assert {name: found for name, found in outcomes.items() if found != {True, False}} == {}


def test_a_page_names_no_metric_that_there_is_not() -> None:
    pages = [ROOT / "docs/monitoring.md", *sorted(RUNBOOKS.glob("*.md"))]
    known = every().keys() | recorded().keys()

    unknown = {page.stem: names_in(page.read_text()) - known for page in pages}
    assert {page: names for page, names in unknown.items() if names} == {}


def test_a_query_may_join_sums_of_claims_with_the_pods_that_use_them() -> None:
    pytest.importorskip("promql_parser")
    users = "max by (namespace, claim) (gpumanager_claim_info)"
    query = f"gpumanager_container_launches_total * on (namespace, claim) group_left () {users}"

    assert Reader(every()).labels(query) == frozenset({"namespace", "claim"})


@pytest.mark.parametrize(
    ("query", "trouble"),
    [
        ("gpumanager_gpu_hapiness", "no program tells gpumanager_gpu_hapiness"),
        ('gpumanager_gpu_healthy{colour="red"}', "gpumanager_gpu_healthy has no colour"),
        ("sum by (verb) (gpumanager_gpu_healthy)", "sum has no verb"),
        ("gpumanager_gpu_healthy * gpumanager_driver_up", "gpu"),
        ("gpumanager_container_launches_total * on (namespace, pod) gpumanager_claim_info",
         "several series on the left: by claim"),
        ("gpumanager_build_info * on (namespace, pod) group_left () gpumanager_claim_info",
         "several series on the right: by claim"),
    ],
)  # fmt: skip
def test_a_query_that_asks_for_nothing_is_found_out(query: str, trouble: str) -> None:
    pytest.importorskip("promql_parser")

    with pytest.raises(AsksForNothing, match=trouble):
        Reader(every()).labels(query)
