"""Objects that pages name are objects that the chart installs, under the names it gives them.

Compared with the rendered default values in kube-system, release `gpu-manager`; besides, what
programs of the chart create at run time: leases and Secrets that their arguments name.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart import goldens
from tests.docs.pages import DOCS, Block, blocks, name_of, pages, prose

KINDS = {
    "deploy": "Deployment",
    "deployment": "Deployment",
    "ds": "DaemonSet",
    "daemonset": "DaemonSet",
    "svc": "Service",
    "service": "Service",
    "cm": "ConfigMap",
    "configmap": "ConfigMap",
    "secret": "Secret",
    "sa": "ServiceAccount",
    "serviceaccount": "ServiceAccount",
    "lease": "Lease",
    "deviceclass": "DeviceClass",
    "mutatingwebhookconfiguration": "MutatingWebhookConfiguration",
    "validatingwebhookconfiguration": "ValidatingWebhookConfiguration",
}
WORDS = "|".join(sorted(KINDS, key=len, reverse=True))
OBJECT = r"[a-z][a-z0-9.-]*[a-z0-9]"
COMMAND = re.compile(rf"\b({WORDS})(?:s|es)?(?:/| (?:-n [\w-]+ )?)(?:generic )?({OBJECT})(?=\s|$)")
SPOKEN = re.compile(
    rf"\b({'|'.join(sorted(set(KINDS.values())))})s?\s+`({OBJECT})`(?:\s+and\s+`({OBJECT})`)?"
)
ELSEWHERE = {("Deployment", "coredns"), ("DaemonSet", "nvidia-device-plugin-daemonset")}
"""Of other projects."""


def installed(*cases: str) -> set[tuple[str, str]]:
    """Kinds and names."""
    found = set()
    for case in cases:
        found |= {(one["kind"], one["metadata"]["name"]) for one in goldens.objects(case)}
        for arguments in goldens.commands(case).values():
            found |= set(_by_arguments(arguments))
        for one in goldens.of_kind(case, "ConfigMap"):
            found |= set(_by_configuration(one))
    return found


def _by_arguments(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for flag, _, value in (one.partition("=") for one in arguments):
        if flag == "--leader-elect-resource-name":
            yield "Lease", value
        if flag == "--secret":
            yield "Secret", value.rpartition("/")[2]
        if flag == "--quota-configmap":
            yield "ConfigMap", value.rpartition("/")[2]


def _by_configuration(one: goldens.Object) -> Iterator[tuple[str, str]]:
    """kube-scheduler's."""
    for text in one["data"].values():
        election = (yaml.safe_load(text) or {}).get("leaderElection") or {}
        if "resourceName" in election:
            yield "Lease", election["resourceName"]


def named(page: Path) -> Iterator[tuple[str, str, str]]:
    """Where, kind, name."""
    for block in blocks(page):
        if block.mark == "cluster":
            yield from _in_commands(block)
    for kind, first, second in SPOKEN.findall(prose(page)):
        yield from ((name_of(page), kind, name) for name in (first, second) if name)


def _in_commands(block: Block) -> Iterator[tuple[str, str, str]]:
    for line in block.text.splitlines():
        if "kubectl" in line and not re.search(r"kubectl (apply|label|annotate)", line):
            for word, name in COMMAND.findall(line):
                yield block.place, KINDS[word], name


def test_objects_that_pages_name_are_objects_of_the_chart() -> None:
    known = installed("default", "claims") | ELSEWHERE
    told = [
        one for page in pages() if DOCS / "decisions" not in page.parents for one in named(page)
    ]

    assert len(told) >= 8
    assert [one for one in told if one[1:] not in known] == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("kubectl -n a get lease gpu-manager-extender", [("Lease", "gpu-manager-extender")]),
        ("kubectl -n a exec deploy/gpu-manager-extender -- x", [
            ("Deployment", "gpu-manager-extender"),
        ]),
        ("kubectl describe configmap -n kube-system gpuquota", [("ConfigMap", "gpuquota")]),
        ("kubectl get lease NAME", []),
    ],
)  # fmt: skip
def test_a_name_is_found_in_a_command(line: str, found: list[tuple[str, str]]) -> None:
    block = Block(DOCS / "x.md", 1, ("sh", "cluster"), line)

    assert [one[1:] for one in _in_commands(block)] == found
