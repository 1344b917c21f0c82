"""YAML on the pages is read by the code that it is meant for."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpumanager import names
from gpumanager.names import ANNOTATION_PREDICATE_GPU_INDEX, VCORE, VMEMORY
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.validate import validate
from gpumanager.sim.manifest.pods import parse_pods
from tests.docs.pages import DOCS, ROOT, Block, blocks, every_block

BLOCKS = [block for block in every_block() if block.language in {"yaml", "json"}]
IMPOSSIBLE = ("one-and-a-half-gpus", "no-memory")
"""Pods of an example that shows what is refused."""

KNOWN = {text for text in vars(names).values() if isinstance(text, str)} | {"tencent.com/webhook"}
OURS = ("tencent.com/", "tkestack.io/", "gaia.tencent.com/", "requests.tencent.com/")


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield str(key)
            yield from keys(below)
    elif isinstance(value, list):
        for below in value:
            yield from keys(below)


def documents(block: Block) -> list[Any]:
    return [one for one in yaml.safe_load_all(block.text) if one is not None]


def pods(block: Block) -> Iterator[dict[str, Any]]:
    """Whole pods; and what is only a part of one, put into a pod."""
    for one in documents(block):
        if not isinstance(one, dict):
            continue
        if one.get("kind") == "Pod":
            yield one
        elif "kind" not in one and ("resources" in one or "annotations" in one.get("metadata", {})):
            share = {"limits": {VCORE: 30, VMEMORY: 8}}
            container = {"name": "main", "resources": one.get("resources", share)}
            metadata = {"name": "part", **one.get("metadata", {})}
            yield {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        else:
            yield from templates(one)


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Pods that a controller makes: of a Deployment, a Job, a RayCluster, JupyterHub's values."""
    if isinstance(value, list):
        for below in value:
            yield from templates(below)
    elif isinstance(value, dict):
        metadata = {"name": "made", **value.get("metadata", {})}
        if "containers" in value.get("spec", {}):
            yield {"kind": "Pod", "metadata": metadata, "spec": value["spec"]}
        if "extraResource" in value:
            metadata["annotations"] = value.get("extraAnnotations", {})
            container = {"name": "notebook", "resources": value["extraResource"]}
            yield {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        for below in value.values():
            yield from templates(below)


def test_a_block_can_be_read_and_names_only_what_we_know(subtests: pytest.Subtests) -> None:
    for block in BLOCKS:
        with subtests.test(block.place):
            found = {key for one in documents(block) for key in keys(one) if key.startswith(OURS)}
            indexed = {key for key in found if key.startswith(ANNOTATION_PREDICATE_GPU_INDEX)}
            assert {key.removeprefix("requests.") for key in found - indexed} - KNOWN == set()


def test_a_pod_on_a_page_is_one_that_the_webhook_lets_in(subtests: pytest.Subtests) -> None:
    for block in BLOCKS:
        for pod in pods(block):
            if pod["metadata"]["name"] in IMPOSSIBLE:
                continue
            with subtests.test(block.place):
                verdict = validate(pod, AdmissionPolicy())
                assert (verdict.errors, verdict.warnings) == ((), ()), pod["metadata"]


@pytest.mark.parametrize("page", ["quickstart.md", "recipes.md"])
def test_a_pod_of_a_recipe_is_one_that_a_simulated_node_takes(
    page: str, subtests: pytest.Subtests
) -> None:
    """KubeRay and JupyterHub say the command; a simulated node needs one."""
    for block in blocks(DOCS / page):
        for pod in pods(block) if block.language == "yaml" else ():
            containers = pod["spec"]["containers"]
            for container in containers:
                container.setdefault("image", "local")
                container.setdefault("command", ["true"])
            with subtests.test(block.place):
                (read,) = parse_pods(yaml.safe_dump({"apiVersion": "v1", **pod}), block.place)
                limits = [one.get("resources", {}).get("limits") for one in containers]
                asked = [int(one[VCORE]) for one in limits if one]
                assert [one.cores for one in read.containers if one.asks] == asked


CHART = yaml.safe_load((ROOT / "charts/gpu-manager/values.yaml").read_text())


def strange(values: Any, known: Any, path: str = "") -> Iterator[str]:
    """Values that the chart does not have; below an empty mapping there may be anything."""
    if not isinstance(known, dict):
        if isinstance(values, dict):
            yield f"{path}: not a group of values"
        return
    for key, below in values.items() if known else ():
        if key not in known:
            yield f"{path}{key}"
        else:
            yield from strange(below, known[key], f"{path}{key}.")


def test_values_on_the_pages_are_those_of_the_chart() -> None:
    shown = [one for block in BLOCKS for one in documents(block) if isinstance(one, dict)]
    values = [
        one for one in shown if not {"kind", "apiVersion"} & one.keys() and one.keys() & CHART
    ]

    assert len(values) >= 4
    assert [name for one in values for name in strange(one, CHART)] == []


def test_a_value_that_the_chart_does_not_have_is_found() -> None:
    values = {"agent": {"prot": 1, "port": {"a": 1}, "nodeSelector": {"a": "b"}}, "agnet": {}}

    assert list(strange(values, CHART)) == [
        "agent.prot",
        "agent.port.: not a group of values",
        "agnet",
    ]


def test_there_are_pods_on_the_pages() -> None:
    assert sum(len(list(pods(block))) for block in BLOCKS) >= 30
