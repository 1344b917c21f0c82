"""docs/contracts.md is what the code has: no name is missing there, none is made up."""

import json
import re
from pathlib import PurePosixPath
from typing import Any

import click
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager import names
from gpumanager.agent.state_lock import FILE_NAME as LOCK
from gpumanager.cli import COMMANDS, gpumanager
from gpumanager.cli.output.simulate_report import Report, as_json
from gpumanager.grants.journal_file import FILE_NAME as JOURNAL
from gpumanager.grants.offers import FILE_NAME as OFFERS
from gpumanager.legacy.checkpoint import FILE_NAME as INHERITED
from gpumanager.legacy.files import PIDS_CONFIG, VCUDA_CONFIG
from gpumanager.monitor.metrics.families import FAMILIES, KEPT_FAMILIES, RPC_SECONDS
from gpumanager.placement.policies import TABLE
from gpumanager.placement.preference import read_preference
from gpumanager.scheduler.extender.explain import Explanation
from gpumanager.scheduler.metrics import GAUGES, Metrics, WebhookMetrics
from gpumanager.scheduler.quota.rules import Known, QuotaCollector, Usage
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.scheduler.webhook.service import Webhook
from gpumanager.settings import AgentSettings
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import parse_pods
from gpumanager.sim.results import ContainerResult
from tests.docs.pages import DOCS, ROOT
from tests.docs.shell import MACHINE, flags

PAGE = (DOCS / "contracts.md").read_text()
SPAN = re.compile(r"`([^`]+)`")
PROMISES = ("kept", "stable", "may change", "the kubelet's", "gpu-manager's")
WEBHOOK_LABEL = "tencent.com/webhook"
SOURCES = [
    path.read_text()
    for path in (ROOT / "gpumanager").rglob("*.py")
    if "sim" not in path.relative_to(ROOT / "gpumanager").parts
]


def rows(section: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def first(section: str) -> set[str]:
    return {name for row in rows(section) for name in SPAN.findall(row[0])}


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


def test_resources_annotations_and_labels_are_those_of_the_code() -> None:
    known = vars(names).items()
    ours = {text for name, text in known if name.startswith(("ANNOTATION_", "LABEL_"))}
    ours -= {names.ANNOTATIONS_OURS}

    wanted = ours | {names.VCORE, names.VMEMORY, WEBHOOK_LABEL}
    assert first("Resources, annotations, labels") == wanted
    assert f"key: {WEBHOOK_LABEL}," in (DOCS / "webhook.md").read_text()


def test_the_commands_are_those_there_are() -> None:
    assert first("Commands and flags") == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flags_of_a_command_are_those_it_takes(command: str) -> None:
    own = [row[2] for row in rows("Commands and flags") if row[0] == f"`{command}`"]
    told = [flag for text in own for flag in SPAN.findall(text) if flag.startswith("--")]
    agents = flags("agent") if any("all flags of `agent`" in text for text in own) else set()

    longest = {flag for flag in flags(command) - agents if flag.startswith("--")} - {"--help"}
    assert sorted(told) == sorted(longest)


def test_paths_over_http_are_those_that_are_served() -> None:
    served = {
        "agent": paths_in("gpumanager/monitor"),
        "webhook": set(Webhook(AdmissionPolicy()).routes()),
        "extender": paths_in("gpumanager/scheduler/extender", "gpumanager/scheduler"),
    }
    for program, paths in served.items():
        told = {name for row in rows("HTTP") if program in row[1] for name in SPAN.findall(row[0])}
        assert told == paths, program


def paths_in(*packages: str) -> set[str]:
    """The keys of its tables of pages, and the paths that have a name."""
    key = re.compile(r'(?:^PATH: Final = |^\s+|\{|, )"(/[a-z/-]*)"(?=:|$)', re.MULTILINE)
    texts = (path.read_text() for one in packages for path in (ROOT / one).glob("*.py"))
    return {path for text in texts for path in key.findall(text)}


def test_metrics_are_those_that_are_told() -> None:
    shown = {of: set[str]() for of in ("agent", "extender", "webhook")}
    for of, _, found in rows("Metrics"):
        shown[of.partition(",")[0]] |= set(SPAN.findall(found))

    agent = (*FAMILIES, *KEPT_FAMILIES, RPC_SECONDS)
    assert shown["agent"] == {
        f"{one.name}_total" if one.kind == "counter" else one.name for one in agent
    }
    metrics = Metrics(dict, bool)
    assert shown["extender"] == told(metrics.text()) | of_quotas()
    assert shown["webhook"] == told(WebhookMetrics(lambda: dict.fromkeys(GAUGES, 0.0)).text())


def test_the_four_metrics_of_gpu_manager_are_kept() -> None:
    kept = [row[2] for row in rows("Metrics") if row[1] == "kept"]

    assert SPAN.findall(kept[0]) == [one.name for one in KEPT_FAMILIES]


def told(text: bytes) -> set[str]:
    """Names of families, without when their series began."""
    families = [one for one in parse(text.decode()) if not one.name.endswith("_created")]
    return {f"{one.name}{'_total' if one.type == 'counter' else ''}" for one in families}


def of_quotas() -> set[str]:
    registry = CollectorRegistry()
    registry.register(QuotaCollector(Known, Usage()))
    return told(generate_latest(registry))


def test_variables_of_the_environment_are_those_that_are_read() -> None:
    read = re.compile(r'(?:environ(?:ment)?\.get\(|environ\[|envvar=)"([A-Z_]+)"')
    found = {name for text in SOURCES for name in read.findall(text)}

    mentioned = {name for name in first("Environment") if any(f'"{name}"' in s for s in SOURCES)}
    assert found - first("Environment") - LOCALE == set()
    assert first("Environment") - mentioned == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_variable_names_the_commands_that_read_it(command: str) -> None:
    readers = {
        row[0]: {word.split()[-1] for word in SPAN.findall(row[1])} for row in rows("Environment")
    }

    found = gpumanager.get_command(click.Context(gpumanager), command)
    assert found is not None
    read = {f"`{one.envvar}`" for one in found.params if isinstance(one.envvar, str)}
    assert {name for name in read if command not in readers[name]} == set()


LOCALE = {"LANG", "LC_ALL", "LC_CTYPE"}
"""The system's own, with the system's meaning."""


def test_files_and_sockets_are_those_of_the_code() -> None:
    constants = vars(names)
    paths = {str(one) for one in constants.values() if isinstance(one, PurePosixPath)}
    words = {constants[name] for name in constants if name.endswith(("_SOCKET", "_NAME"))}
    settings = AgentSettings()
    directories = {str(settings.virtual_manager_path), str(settings.checkpoint_path)}
    files = {JOURNAL, OFFERS, LOCK, INHERITED, VCUDA_CONFIG, PIDS_CONFIG, names.KUBELET_CHECKPOINT}

    wanted = paths | words | directories | files | {names.DEVICE_PLUGIN_PATH}
    assert first("Files and sockets") == wanted | {"volume.conf", "extra-config.json"}


def test_reasons_of_events_are_those_that_are_given() -> None:
    given = re.compile(r'"((?:Gpu|Nvml|Quota|OtherGpu)[A-Z][A-Za-z]+)"')
    found = {name for text in SOURCES for name in given.findall(text)}
    conditions = {"NvmlSilent", "NvmlFails"}

    shown = {name for row in rows("Events") for name in SPAN.findall(row[1])}
    assert shown == {one for one in found if not one.startswith("GpuUUID")} - conditions - OTHER


OTHER = {"GpuManager", "GpusHealthy"}


def test_fields_of_json_are_those_that_are_printed() -> None:
    found = {row[0]: set(SPAN.findall(row[1])) for row in rows("JSON")}

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
