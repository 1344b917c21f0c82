"""Objects of the rendered chart, and the few ways in which tests look at them.

golden/default.yaml has all of them, with the chart's own values; golden/CASE.diff says what
ci/CASE-values.yaml changes (`differences`). deploy/gpu-manager.yaml is one more case.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests import ROOT
from tests.chart import differences
from tests.chart.differences import Objects

GOLDEN: Final = Path(__file__).parent / "golden"
DEFAULT: Final = GOLDEN / "default.yaml"
RAW: Final = ROOT / "deploy" / "gpu-manager.yaml"
CI: Final = ROOT / "charts" / "gpu-manager" / "ci"
CASES: Final = tuple(sorted(one.name.removesuffix("-values.yaml") for one in CI.iterdir()))
WITH_RAW: Final = (*CASES, "raw")
WORKLOADS: Final = {"DaemonSet", "Deployment"}
COMPONENT: Final = "app.kubernetes.io/component"
OURS: Final = ("agent", "extender", "webhook")
"""Parts that are of our image, whose first argument is their name."""

Object = Mapping[str, Any]


def golden(case: str) -> Path:
    return DEFAULT if case == "default" else GOLDEN / f"{case}.diff"


def default_of(case: str) -> Objects:
    """The default's objects, by the names that the case gives them."""
    chosen = yaml.safe_load((CI / f"{case}-values.yaml").read_text())
    name = chosen.get("fullnameOverride", "gpu-manager")
    ours = re.compile(r"(?m)\bgpu-manager(?=-[a-z])|(?<=^  name: )gpu-manager$")
    return differences.objects(ours.sub(name, DEFAULT.read_text()))


@cache
def text(case: str) -> str:
    """All that is rendered of a case."""
    if case == "raw":
        return RAW.read_text()
    if case == "default":
        return DEFAULT.read_text()
    return differences.text(differences.applied(default_of(case), golden(case).read_text()))


@cache
def objects(case: str) -> tuple[Object, ...]:
    return tuple(one for one in yaml.safe_load_all(text(case)) if one)


def of_kind(case: str, *kinds: str) -> list[Object]:
    return [one for one in objects(case) if one["kind"] in kinds]


def part(one: Object) -> str:
    """Of which part an object is."""
    return str(one["metadata"]["labels"][COMPONENT])


def workloads(case: str) -> dict[str, Object]:
    """What runs pods, by part."""
    return {part(one): one for one in of_kind(case, *WORKLOADS)}


def template(workload: Object) -> Object:
    found: Object = workload["spec"]["template"]
    return found


def container(workload: Object) -> Object:
    (found,) = template(workload)["spec"]["containers"]
    return dict(found)


def commands(case: str) -> dict[str, list[str]]:
    """The arguments of `gpumanager` in the containers of our parts."""
    found = workloads(case).items()
    return {name: list(container(one)["args"]) for name, one in found if name in OURS}


def name_of(one: Object) -> str:
    return f"{one['kind']} {one['metadata']['name']}"
