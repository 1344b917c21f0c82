"""What is made of the chart's values.yaml: the JSON schema, and the table in docs/install.md.

values.yaml has a sentence above every value and its default; what a value may be besides follows
from its default's type, or stands here, by its name or its whole path.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from gpumanager.placement.nearness import NEARNESS
from gpumanager.placement.policies import ROWS
from gpumanager.placement.preference import ALIASES

CHART: Final = Path(__file__).parents[2] / "charts" / "gpu-manager"
Schema = dict[str, Any]

_KEY: Final = re.compile(r"( *)([A-Za-z0-9]+):(?: |$)")
_COMMENT: Final = re.compile(r"( *)# (.*)")

TEXTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?(m|[kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?$"
AMOUNTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number"], "pattern": QUANTITY, "minimum": 0},
}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def record(required: tuple[str, ...] = (), **fields: Schema) -> Schema:
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def several(item: Schema) -> Schema:
    return {"type": "array", "items": item}


TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer", "minimum": 0}
ANYTHING: Final[Schema] = {"type": "object"}
PATH: Final[Schema] = {"type": "string", "pattern": "^/[^ ]*[^/]$"}
PORT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 65535}
REPLICAS: Final[Schema] = {"type": "integer", "minimum": 1}
SELECTOR: Final = record(matchLabels=TEXTS, matchExpressions=several(ANYTHING))
PEER: Final = record(ipBlock=ANYTHING, namespaceSelector=SELECTOR, podSelector=SELECTOR)
FLAG: Final[Schema] = {"type": "string", "pattern": "^--[a-z]"}

_KINDS: Final = (*NEARNESS, *(old for old, new in ALIASES.items() if new in NEARNESS))
GPU_POLICIES: Final = (*ROWS, *(old for old, new in ALIASES.items() if new in ROWS))
_WEIGHT: Final = r"(0*1000(\.0*)?|0*[1-9][0-9]{0,2}(\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*)"
_TERM: Final = (
    f"(({'|'.join((*GPU_POLICIES, *_KINDS))})(={_WEIGHT})?|({'|'.join(_KINDS)})(-strict|=strict))"
)
POLICY: Final = f"^({_TERM}(, ?{_TERM})*)?$"
"""As `read_preference` takes it; a name that comes twice is refused by a template."""
SIZE: Final = r"[0-9]+ ?([KMGT]iB)?"
"""As `parse_bytes` takes it."""
LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""As names of namespaces are, and parts of other names."""
LABEL_VALUE: Final = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
LABELS: Final[Schema] = {
    "type": "object",
    "propertyNames": {"pattern": "^([a-z0-9.-]+/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$"},
    "additionalProperties": {"type": "string", "pattern": LABEL_VALUE},
}
PERCENT: Final = "([1-9][0-9]?|100)%"

BY_NAME: Final[Mapping[str, Schema]] = {
    **dict.fromkeys(("labels", "annotations", "seLinuxOptions"), TEXTS),
    **dict.fromkeys(("podAnnotations", "serviceAccountAnnotations"), TEXTS),
    "nodeLabels": LABELS,
    "commonLabels": LABELS,
    "nodeSelector": LABELS,
    "affinity": record(nodeAffinity=ANYTHING, podAffinity=ANYTHING, podAntiAffinity=ANYTHING),
    "tolerations": several(
        record(
            key=TEXT,
            operator=one_of("Exists", "Equal"),
            value=TEXT,
            effect=one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
            tolerationSeconds=NUMBER,
        )
    ),
    "resources": record(requests=AMOUNTS, limits=AMOUNTS),
    "issuerRef": record(name=TEXT, kind=TEXT, group=TEXT),
    "extraArgs": several(FLAG),
    "extraEnv": several({"type": "object", "required": ["name"]}),
    "extraVolumes": several({"type": "object", "required": ["name"]}),
    "extraVolumeMounts": several({"type": "object", "required": ["name", "mountPath"]}),
    "namespaceSelector": SELECTOR,
    "pullSecrets": several({"type": "string", "minLength": 1}),
    "replicas": REPLICAS,
    "port": PORT,
}

BY_PATH: Final[Mapping[str, Schema]] = {
    "openshift": one_of("auto", "always", "never"),
    "logFormat": one_of("text", "json"),
    "image.repository": {"type": "string", "minLength": 1},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "driver.root": {"type": "string", "pattern": "^/([^ ]+/[^ /]+)?$"},
    "driver.loadModules": one_of("missing", "never"),
    "driver.deviceDirectory": PATH,
    "kubelet.root": PATH,
    "kubelet.podsBy": one_of("auto", "nodes/pods", "nodes/proxy"),
    "containerRuntime.socket": PATH,
    "agent.interface": one_of("device-plugin", "claims", "both"),
    "agent.claimsGpus": {"type": "integer", "minimum": 0},
    "agent.cdiDirectory": PATH,
    "agent.unhealthyTaint": one_of("NoSchedule", "NoExecute"),
    "agent.stateDirectory": PATH,
    "agent.gpuPolicy": one_of(*GPU_POLICIES),
    "agent.reservedMemory": {"type": "string", "pattern": f"^({SIZE})?$"},
    "agent.address": {"type": "string", "pattern": "^([0-9.]+|[0-9a-fA-F:]+|localhost)?$"},
    "agent.onBypass": one_of("report", "pause", "end"),
    "agent.cudaCompat": one_of("shim", "image"),
    "agent.port": {"type": "integer", "minimum": 0, "maximum": 65535},
    "agent.maxUnavailable": {
        "type": ["integer", "string"],
        "pattern": f"^{PERCENT}$",
        "minimum": 1,
    },
    "agent.maxSurge": {"type": ["integer", "string"], "pattern": f"^(0%|{PERCENT})$", "minimum": 0},
    "extender.policy": {"type": "string", "pattern": POLICY},
    "extender.gpuPolicy": one_of("", *GPU_POLICIES),
    "extender.maxRequestMiB": {"type": "integer", "minimum": 1, "maximum": 1024},
    "extender.tls.source": one_of("helm", "certManager", "secret", "none"),
    "extender.clientCertificate.required": one_of("auto", "always", "never"),
    "extender.clientCertificate.name": {"type": "string", "minLength": 1},
    "scheduler.name": {"type": "string", "minLength": 1, "not": {"const": "default-scheduler"}},
    "scheduler.extenderWeight": {"type": "integer", "minimum": 1},
    "claims.extendedResource": {"type": "string", "pattern": "^([a-z0-9.-]+/[A-Za-z0-9._-]+)?$"},
    "webhook.defaultMemory": {
        "type": "string",
        # The least is 256 MiB, a block.
        "pattern": "^(refuse|share|0*[1-9][0-9]* ?[GT]iB|0*([3-9][0-9]{8}|[1-9][0-9]{9,})"
        "|0*(25[6-9]|2[6-9][0-9]|[3-9][0-9]{2}|[1-9][0-9]{3,}) ?MiB)$",
    },
    "webhook.nodeName": one_of("affinity", "keep"),
    "webhook.unschedulable": one_of("deny", "warn", "ignore"),
    "webhook.fail": one_of("open", "closed"),
    "webhook.failurePolicy": one_of("Ignore", "Fail"),
    "webhook.claims": one_of("never", "labelled", "always"),
    "webhook.timeoutSeconds": {"type": "integer", "minimum": 1, "maximum": 30},
    "webhook.drainSeconds": {"type": "integer", "minimum": 0, "maximum": 300},
    "webhook.tls.source": one_of("self", "certManager", "secret"),
    "quota.namespace": {"type": "string", "pattern": f"^{LABEL}$"},
    "quota.configMap": {"type": "string", "pattern": rf"^({LABEL}(\.{LABEL})*)?$"},
    "networkPolicy.apiServerPorts": several(PORT),
    "networkPolicy.dnsPorts": several(PORT),
    "networkPolicy.extenderFrom": several(PEER),
    "networkPolicy.metricsFrom": several(PEER),
    "monitoring.podMonitors.interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
}

BY_TYPE: Final[Mapping[type, Schema]] = {
    bool: {"type": "boolean"},
    int: NUMBER,
    str: TEXT,
}

GLOBAL: Final[Schema] = {
    "type": "object",
    "description": "What a chart that has this one as its part passes to all parts; not read here.",
}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the chart, or a group of them. path: `agent.port`."""

    path: str
    sentence: str
    default: Any
    group: bool

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def constraint(self) -> Schema:
        """What it may be; raises KeyError where neither its type nor its name tells."""
        for table, key in ((BY_PATH, self.path), (BY_NAME, self.name)):
            if key in table:
                return dict(table[key])
        return dict(BY_TYPE[type(self.default)])


def described(text: str) -> tuple[Value, ...]:
    """All values in the order of the file, groups before what is in them."""
    defaults = yaml.safe_load(text)
    sentences = dict(_sentences(text.splitlines()))
    groups = {path.rpartition(".")[0] for path in sentences}
    return tuple(
        Value(path, sentence, _at(defaults, path), path in groups)
        for path, sentence in sentences.items()
    )


def undescribed(values: tuple[Value, ...], text: str) -> list[str]:
    """Values beside described ones, without a sentence of their own."""
    known = {one.path for one in values}
    groups = {"": yaml.safe_load(text)} | {one.path: one.default for one in values if one.group}
    paths = [f"{path}.{name}".lstrip(".") for path, group in groups.items() for name in group]
    return [path for path in paths if path not in known]


def schema(values: tuple[Value, ...]) -> Schema:
    """JSON schema, draft 7, of all values."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart gpu-manager",
        **_group(values, "", {"global": GLOBAL}),
    }


def table(values: tuple[Value, ...]) -> str:
    """The values as Markdown tables, one for each part."""
    parts = [one for one in values if "." not in one.path]
    loose = [one for one in parts if not one.group]
    lines = [*HEAD, *map(_row, loose)]
    for part in (one for one in parts if one.group):
        inside = [one for one in values if one.path.startswith(f"{part.path}.") and not one.group]
        lines += ["", f"**{part.path}**: {_uncapitalised(part.sentence)}", "", *HEAD]
        lines += map(_row, inside)
    return "\n".join(lines) + "\n"


HEAD: Final = ("| value | default | |", "|---|---|---|")
LONGEST: Final = 48
"""A default that is longer is to be read in values.yaml."""


def _sentences(lines: list[str]) -> Iterator[tuple[str, str]]:
    above: list[tuple[int, str]] = []
    path: list[tuple[int, str]] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            above.append((len(comment[1]), comment[2]))
            continue
        if key := _KEY.match(line):
            indent = len(key[1])
            path = [*(one for one in path if one[0] < indent), (indent, key[2])]
            words = [text for place, text in above if place == indent]
            if words:
                yield ".".join(name for _, name in path), " ".join(words)
        above = []


def _at(defaults: Any, path: str) -> Any:
    found = defaults
    for name in path.split("."):
        found = found[name]
    return found


def _group(values: tuple[Value, ...], path: str, more: Mapping[str, Schema]) -> Schema:
    inside = [one for one in values if one.path.rpartition(".")[0] == path]
    return {
        "type": "object",
        "properties": {one.name: _schema(values, one) for one in inside} | dict(more),
        "additionalProperties": False,
    }


def _schema(values: tuple[Value, ...], one: Value) -> Schema:
    found = _group(values, one.path, {}) if one.group else one.constraint
    return {"description": one.sentence, **found}


def _row(one: Value) -> str:
    default = json.dumps(one.default)
    shown = f"`{default}`" if len(default) <= LONGEST else "see values.yaml"
    sentence = one.sentence.replace("|", "\\|")
    return f"| `{one.path}` | {shown} | {sentence} |"


def _uncapitalised(sentence: str) -> str:
    is_name = sentence[1].isupper()  # NVIDIA, GPU
    return sentence if is_name else sentence[0].lower() + sentence[1:]
