"""Tables of pages are what the code has (`generate`), and every name has a promise."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gpumanager.cli import COMMANDS, gpumanager
from gpumanager.cli.output.simulate_report import Report, as_json
from gpumanager.placement.policies import TABLE
from gpumanager.placement.preference import read_preference
from gpumanager.scheduler.extender.explain import Explanation
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import parse_pods
from gpumanager.sim.results import ContainerResult
from tests.docs import generate
from tests.docs.generate import Row, cells, spans
from tests.docs.pages import DOCS, ROOT
from tests.docs.shell import MACHINE

PAGE = (DOCS / "contracts.md").read_text()
PROMISES = ("kept", "stable", "may change", "the kubelet's", "gpu-manager's")


@pytest.mark.parametrize("page", generate.PAGES, ids=lambda page: page.stem)
def test_tables_have_the_rows_of_the_code(page: Path) -> None:
    assert page.read_text() == generate.page_text(page.read_text()), (
        "run `python -m tests.docs.generate`"
    )


def test_every_table_that_the_code_has_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in generate.PAGES)

    assert re.findall(r"<!-- rows of (.+): made by tests/docs/generate", text) == [*generate.TABLES]


@pytest.mark.parametrize(
    ("name", "line", "made"),
    [
        pytest.param("files", "| `gone` | kept | x |", [], id="a name that is gone"),
        pytest.param("commands", "| `gone` | kept | `--x` |", [], id="a command that is gone"),
        pytest.param("commands", "| `probe` | kept | `--x`, `--socket` |",
                     ["| `probe` | kept | `--socket` |"], id="a flag that is gone"),
        pytest.param("commands", "| `probe` | kept | `--x` |",
                     ["| `probe` | kept |  |", "| `probe` | may change | `--socket` |"],
                     id="a new flag may change"),
        pytest.param("files", "| `config` | kept | x |",
                     ["| `config` | kept | x |", "| `ring` |  |  |"], id="a new name has no words"),
        pytest.param("paths over HTTP", "| `/mutate` | agent | stable |",
                     ["| `/mutate` | webhook | stable |"], id="who serves a path"),
    ],
)  # fmt: skip
def test_what_a_page_alone_says_stays(name: str, line: str, made: list[str]) -> None:
    rows = [f"| {' | '.join(row)} |" for row in generate.TABLES[name]([cells(line)])]

    assert [one for one in made if one not in rows] == []
    assert line in made or line not in rows


def rows(section: str) -> list[Row]:
    """The cells of the table below a heading, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [cells(line) for line in text.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize(
    ("section", "column"),
    [
        ("Resources, annotations, labels", 2),
        ("Commands and flags", 1),
        ("Environment", 2),
        ("HTTP", 2),
        ("Files and sockets", 1),
        ("Metrics", 1),
    ],
)
def test_every_row_has_its_promise(section: str, column: int) -> None:
    assert [row for row in rows(section) if not row[column].startswith(PROMISES)] == []


def test_the_webhooks_page_has_its_label() -> None:
    assert f"key: {generate.WEBHOOK_LABEL}," in (DOCS / "webhook.md").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_variable_names_the_commands_that_read_it(command: str) -> None:
    readers = {row[0]: {word.split()[-1] for word in spans(row[1])} for row in rows("Environment")}

    found = gpumanager.get_command(click.Context(gpumanager), command)
    assert found is not None
    read = {f"`{one.envvar}`" for one in found.params if isinstance(one.envvar, str)}
    assert {name for name in read if command not in readers[name]} == set()


def test_reasons_of_events_are_those_that_are_given() -> None:
    given = re.compile(r'"((?:Gpu|Nvml|Quota|OtherGpu)[A-Z][A-Za-z]+)"')
    found = {name for text in generate.sources() for name in given.findall(text)}

    shown = {name for row in rows("Events") for name in spans(row[1])}
    assert shown == {one for one in found if not one.startswith("GpuUUID")} - OTHER


OTHER = {"GpuManager", "GpusHealthy", "NvmlSilent", "NvmlFails"}
"""Names and reasons of conditions."""


def test_fields_of_json_are_those_that_are_printed() -> None:
    found = {row[0]: set(spans(row[1])) for row in rows("JSON")}

    assert found["`gpumanager plan --json`"] == fields(plan())
    assert found["`gpumanager simulate --json`"] == fields(simulated())
    assert found["`gpumanager explain --json`"] == set(Explanation("", 0.0).as_json())
    assert found["`gpumanager doctor --json`"] == fields(doctor())


def fields(value: Any) -> set[str]:
    """All keys, however deep."""
    if isinstance(value, dict):
        return set(value).union(*map(fields, value.values()))
    return set().union(*map(fields, value)) if isinstance(value, list | tuple) else set()


def plan() -> Any:
    words = ["plan", "--topology", str(MACHINE), "--request", "30:4", "--request", "3200", "--json"]
    return json.loads(CliRunner().invoke(gpumanager, words).stdout)


def simulated() -> Any:
    (pod,) = parse_pods((ROOT / "examples/half-a-gpu.yaml").read_text(), "half-a-gpu.yaml")
    said = {pod.full_name: Decision()}
    results = [ContainerResult(pod, pod.containers[0])]
    return as_json(Report(load_machine("single"), results, said=said))


def doctor() -> Any:
    words = ["doctor", "--json"]
    return json.loads(CliRunner().invoke(gpumanager, words, standalone_mode=False).stdout)


@pytest.mark.parametrize("page", ["extender.md"])
def test_every_policy_is_in_the_table_of_its_page(page: str) -> None:
    rows_of = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / page).read_text(), re.MULTILINE)

    assert {row.name for row in TABLE} - set(rows_of) == set()
    for name in ("topology", "numa"):
        assert name in rows_of
        assert read_preference(name)
