"""Objects of the rendered chart, and the few ways in which tests look at them."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

GOLDEN: Final = Path(__file__).parent / "golden"
RAW: Final = Path(__file__).parents[2] / "deploy" / "gpu-manager.yaml"
FILES: Final = (*sorted(GOLDEN.glob("*.yaml")), RAW)
WORKLOADS: Final = {"DaemonSet", "Deployment"}
COMPONENT: Final = "app.kubernetes.io/component"
OURS: Final = ("agent", "extender", "webhook")
"""Parts that are of our image, whose first argument is their name."""

Object = Mapping[str, Any]


@cache
def objects(path: Path) -> tuple[Object, ...]:
    return tuple(one for one in yaml.safe_load_all(path.read_text()) if one)


def of_kind(path: Path, *kinds: str) -> list[Object]:
    return [one for one in objects(path) if one["kind"] in kinds]


def part(one: Object) -> str:
    """Of which part an object is."""
    return str(one["metadata"]["labels"][COMPONENT])


def workloads(path: Path) -> dict[str, Object]:
    """What runs pods, by part."""
    return {part(one): one for one in of_kind(path, *WORKLOADS)}


def template(workload: Object) -> Object:
    found: Object = workload["spec"]["template"]
    return found


def container(workload: Object) -> Object:
    (found,) = template(workload)["spec"]["containers"]
    return dict(found)


def commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Parts of ours and the arguments of `gpumanager` in their containers."""
    for name, one in workloads(path).items():
        if name in OURS:
            yield name, list(container(one)["args"])


def name_of(one: Object) -> str:
    return f"{one['kind']} {one['metadata']['name']}"
