"""Write the rows of tables that the code has: of docs/metrics.md and docs/contracts.md.

    python -m tests.docs.generate

A table whose rows are made here stands below a comment that names it. What only the page says of a
row, such as how stable a name is, stays as it is there; a new row's words are left to be written.
A new flag begins as one that may change.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager import names
from gpumanager.agent.state_lock import FILE_NAME as LOCK
from gpumanager.cli import COMMANDS
from gpumanager.grants.journal_file import FILE_NAME as JOURNAL
from gpumanager.grants.offers import FILE_NAME as OFFERS
from gpumanager.legacy.checkpoint import FILE_NAME as INHERITED
from gpumanager.legacy.files import PIDS_CONFIG, VCUDA_CONFIG
from gpumanager.monitor.metrics import families
from gpumanager.monitor.metrics.families import FAMILIES, KEPT_FAMILIES, RPC_SECONDS
from gpumanager.monitor.metrics.rows import Family
from gpumanager.scheduler.metrics import GAUGES, Metrics, WebhookMetrics
from gpumanager.scheduler.quota.rules import Known, QuotaCollector, Usage
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.service import Webhook
from gpumanager.settings import AgentSettings
from tests.docs.pages import DOCS, ROOT
from tests.docs.shell import flags

PAGES: Final = (DOCS / "metrics.md", DOCS / "contracts.md")
SPAN: Final = re.compile(r"`([^`]+)`")
WEBHOOK_LABEL: Final = "tencent.com/webhook"
LOCALE: Final = {"LANG", "LC_ALL", "LC_CTYPE"}
"""The system's own, with the system's meaning."""
NEW_FLAGS: Final = "may change"

_TABLE: Final = re.compile(
    r"(?m)^(<!-- rows of (.+): made by tests/docs/generate\.py -->\n\n(?:\|.*\n){2})((?:\|.*\n)*)"
)

Row = list[str]
Rows = Callable[[list[Row]], Iterable[Row]]
"""Rows as they are to be, by those that are there."""


def page_text(text: str) -> str:
    """The page with its tables as they are to be."""

    def made(table: re.Match[str]) -> str:
        lines = TABLES[table[2]]([cells(line) for line in table[3].splitlines()])
        return table[1] + "".join(f"| {' | '.join(row)} |\n" for row in lines)

    return _TABLE.sub(made, text)


def cells(line: str) -> Row:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def listed(found: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in found)


def spans(text: str) -> list[str]:
    return SPAN.findall(text)


def metrics(rows: Iterable[Family]) -> Rows:
    return lambda _: [[f"`{full(row)}`", row.kind, listed(row.labels), row.help] for row in rows]


def full(row: Family) -> str:
    return f"{row.name}_total" if row.kind == "counter" else row.name


def names_of_metrics(_: list[Row]) -> list[Row]:
    registry = CollectorRegistry()
    registry.register(QuotaCollector(Known, Usage()))
    quotas = told(generate_latest(registry))
    webhook = WebhookMetrics(lambda: dict.fromkeys(GAUGES, 0.0)).text()
    return [
        ["agent, on `/metric`", "kept", listed(map(full, KEPT_FAMILIES))],
        ["agent", "stable", listed(map(full, (*FAMILIES, RPC_SECONDS)))],
        ["extender", "stable", listed([*told(Metrics(dict, bool).text()), *quotas])],
        ["webhook", "stable", listed(told(webhook))],
    ]


def told(text: bytes) -> list[str]:
    """Names of families, without when their series began."""
    found = [one for one in parse(text.decode()) if not one.name.endswith("_created")]
    return [f"{one.name}{'_total' if one.type == 'counter' else ''}" for one in found]


def named(wanted: set[str], allowed: Iterable[str] = ()) -> Rows:
    """One row for each name. allowed: other names that may have one."""

    def made(there: list[Row]) -> Iterable[Row]:
        kept = [row for row in there if {*spans(row[0])} <= wanted.union(allowed)]
        yield from kept
        missing = wanted.difference(*(spans(row[0]) for row in kept))
        yield from ([f"`{name}`", *[""] * (len(there[0]) - 1)] for name in sorted(missing))

    return made


def annotations() -> set[str]:
    known = vars(names).items()
    ours = {text for name, text in known if name.startswith(("ANNOTATION_", "LABEL_"))}
    return ours - {names.ANNOTATIONS_OURS} | {names.VCORE, names.VMEMORY, WEBHOOK_LABEL}


def commands(there: list[Row]) -> Iterable[Row]:
    for command in sorted(COMMANDS):
        of_agent = [row[0] for row in there if "all flags of `agent`" in row[-1]]
        others = flags("agent") if f"`{command}`" in of_agent else set()
        left = {one for one in flags(command) - others if one.startswith("--")} - {"--help"}
        own = [row for row in there if row[0] == f"`{command}`"]
        if not own or left.difference(*(spans(row[2]) for row in own)):
            own.append([f"`{command}`", NEW_FLAGS, listed(sorted(left))])
        for name, stability, text in own:
            gone = [one for one in spans(text) if one.startswith("--") and one not in left]
            left -= {*spans(text)}
            kept = re.sub("|".join(f"`{one}`(, )?" for one in gone), "", text)
            yield [name, stability, kept.removesuffix(", ")]


def http(there: list[Row]) -> Iterable[Row]:
    served = {
        "agent": paths_in("gpumanager/monitor"),
        "extender": paths_in("gpumanager/scheduler/extender", "gpumanager/scheduler"),
        "webhook": set(Webhook(AdmissionPolicy()).routes()),
    }
    for name, _, stability in named(set().union(*served.values()))(there):
        of = [program for program, paths in served.items() if name.strip("`") in paths]
        yield [name, ", ".join(of), stability]


def paths_in(*packages: str) -> set[str]:
    """The keys of its tables of pages, and the paths that have a name."""
    key = re.compile(r'(?:^PATH: Final = |^\s+|\{|, )"(/[a-z/-]*)"(?=:|$)', re.MULTILINE)
    texts = (path.read_text() for one in packages for path in (ROOT / one).glob("*.py"))
    return {path for text in texts for path in key.findall(text)}


def sources() -> list[str]:
    """All of the product but its simulator."""
    package = ROOT / "gpumanager"
    found = (path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "sim")
    return [path.read_text() for path in found]


def variables(there: list[Row]) -> Iterable[Row]:
    read = re.compile(r'(?:environ(?:ment)?\.get\(|environ\[|envvar=)"([A-Z_]+)"')
    texts = sources()
    set_for_containers = {name for text in texts for name in re.findall(r'"([A-Z0-9_]+)"', text)}
    found = {name for text in texts for name in read.findall(text)} - LOCALE
    return named(found, set_for_containers)(there)


def files() -> set[str]:
    constants = vars(names)
    paths = {str(one) for one in constants.values() if isinstance(one, PurePosixPath)}
    words = {constants[name] for name in constants if name.endswith(("_SOCKET", "_NAME"))}
    settings = AgentSettings()
    directories = {str(settings.virtual_manager_path), str(settings.checkpoint_path)}
    own = {JOURNAL, OFFERS, LOCK, INHERITED, VCUDA_CONFIG, PIDS_CONFIG, names.KUBELET_CHECKPOINT}
    gpu_managers = {"volume.conf", "extra-config.json"}
    return paths | words | directories | own | gpu_managers | {names.DEVICE_PLUGIN_PATH}


CLAIM, *REFUSALS = families.OF_CLAIMS
TABLES: Final[Mapping[str, Rows]] = {
    "metrics of GPUs": metrics(families.OF_GPUS),
    "metrics of containers": metrics((*families.OF_CONTAINERS, CLAIM)),
    "gpu-manager's metrics": metrics(KEPT_FAMILIES),
    "metrics of the agent": metrics((*families.OF_THE_AGENT, *REFUSALS, RPC_SECONDS)),
    "annotations": named(annotations()),
    "commands": commands,
    "variables": variables,
    "paths over HTTP": http,
    "files": named(files()),
    "names of metrics": names_of_metrics,
}

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(page_text(page.read_text()))
