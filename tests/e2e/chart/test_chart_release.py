"""The chart as a release on a real API server: installed, upgraded, rolled back and uninstalled.

No pod runs here, for there is no controller; what the agent's does is shown by
`test_chart_on_a_node`. The Prometheus operator's and cert-manager's kinds are known by definitions
of our own (`foreign_kinds`). So it is shown that group, version, kind, scope, names and types of
the fields that we write are as documented; not that today's definitions of those projects agree,
nor that their operators do anything with the objects.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from tests.chart import goldens, helm_program
from tests.e2e.chart.foreign_kinds import foreign_kinds
from tests.e2e.chart.real_release import NAMESPACE, Release, notes, skip_if_too_old
from tests.e2e.cluster.api_client import ApiError
from tests.e2e.cluster.cluster_objects import as_stored, everything, is_taken, parsed
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import RealNode

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

RAW: Final = "without helm"
CHANGES: Final = ("--set", "agent.logLevel=4", "--set", "extender.policy=topology")
WRONG: Final = {
    "Service": (RAW, "selektor", {}),
    "PodMonitor": ("everything", "podMetricEndpoints", []),
    "PrometheusRule": ("everything", "groups", {"name": "agent"}),
    "Certificate": ("second-scheduler", "dnsNames", "one.example.com"),
    "Issuer": ("second-scheduler", "selfSigned", True),
}
"""By kind: a case that has one, and a field of its spec that is none or is of another type."""


@pytest.fixture(scope="module", autouse=True)
def _operators(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> Iterator[None]:
    skip_if_too_old(stage[0])
    with foreign_kinds(stage[0].api):
        yield


@cache
def _text(case: str) -> str:
    """What helm renders, rules and dashboards too."""
    if case == RAW:
        return goldens.RAW.read_text()
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    return helm_program.rendered("--values", f"ci/{case}-values.yaml")


@pytest.mark.parametrize("case", [*goldens.CASES, RAW])
def test_an_api_server_takes_every_object_as_it_is(node: RealNode, case: str) -> None:
    unknown = [one["kind"] for one in parsed(_text(case)) if not is_taken(node.api, one)]

    assert unknown == []


@pytest.mark.parametrize("kind", WRONG)
def test_an_object_with_a_wrong_field_is_not_taken(node: RealNode, kind: str) -> None:
    case, field, value = WRONG[kind]
    right = next(one for one in parsed(_text(case)) if one["kind"] == kind)
    wrong = {**right, "spec": {**right["spec"], field: value}}

    with pytest.raises(ApiError, match=field):
        is_taken(node.api, wrong)


@pytest.fixture
def release(node: RealNode) -> Iterator[Release]:
    """Of a name that no other test's objects begin with."""
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    made = Release(node, "trial")
    yield made
    made.uninstall("--ignore-not-found")


@pytest.mark.parametrize("case", goldens.CASES)
def test_an_uninstall_leaves_nothing_of_what_was_installed(
    node: RealNode, release: Release, case: str
) -> None:
    before = everything(node.api)

    said = release.install("--values", f"ci/{case}-values.yaml")
    manifest = release.manifest
    stored = [as_stored(node.api, one) for one in manifest]
    release.uninstall()

    assert len(stored) == len(manifest) > 0
    assert everything(node.api) == before
    assert f"is installed in {NAMESPACE}" in notes(said)
    assert "\n\n\n" not in notes(said)


def test_a_rollback_brings_back_what_an_upgrade_changed(node: RealNode, release: Release) -> None:
    release.install("--set", "agent.maxUnavailable=2")
    installed = _content(node, release)
    release.upgrade(*CHANGES)
    upgraded = _content(node, release)
    release.rollback()

    changed = {one for one in installed if installed[one] != upgraded[one]}
    assert changed == {"DaemonSet trial-gpu-manager-agent", "Deployment trial-gpu-manager-extender"}
    assert upgraded["DaemonSet trial-gpu-manager-agent"]["spec"]["updateStrategy"] == (
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}
    )
    assert _content(node, release) == installed


def test_the_extenders_certificates_are_kept_by_upgrades_and_rollbacks(
    node: RealNode, release: Release
) -> None:
    """Its own, and the one by which it knows kube-scheduler."""
    release.install()
    made = _secrets(node, release)

    release.upgrade(*CHANGES)
    kept = _secrets(node, release)
    release.rollback()

    assert [one.keys() for one in made] == [{"ca.crt", "tls.crt", "tls.key"}] * 2
    assert made[0] != made[1]
    assert kept == made
    assert _secrets(node, release) == made


def _secrets(node: RealNode, release: Release) -> list[Any]:
    secrets = (one for one in release.manifest if one["kind"] == "Secret")
    return [as_stored(node.api, one)["data"] for one in secrets]


def _content(node: RealNode, release: Release) -> Mapping[str, Mapping[str, Any]]:
    """What objects are, by kind and name, without what the API server notes of each."""
    passing = {"metadata", "status"}
    return {
        goldens.name_of(one): {
            key: value for key, value in as_stored(node.api, one).items() if key not in passing
        }
        for one in release.manifest
    }
