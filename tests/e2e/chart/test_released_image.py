"""The image run by containerd as the chart's Deployments have it: as their user, on a read-only
root, with their accounts. (As the DaemonSet has it: `test_chart_on_a_node`.)

Pods have no network here, so these two are given the host's; and there is no controller, so a test
makes their pods, and gives them their Service's name. Each is ready when its own readiness probe
says so, over TLS.
"""

import json
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from tests.chart import helm_program
from tests.e2e.chart.real_chart import POD, PODS, ChartedAgent, pod_of
from tests.e2e.chart.real_release import skip_if_too_old
from tests.e2e.cluster.api_client import silent
from tests.e2e.cluster.cluster_objects import Object, as_stored
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import API_PORT, NODE, RealNode
from tests.e2e.node.real_pods import LOGS, RealPods, container, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

API: Final = (
    {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
    {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_PORT)},
)
EXTENDER_PORT: Final = 3456


@pytest.fixture(scope="module")
def charted(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> Iterator[ChartedAgent]:
    """The chart, installed with extender and webhook; the host's own agent goes on."""
    node, agent, _ = stage
    skip_if_too_old(node)
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    on = {"enabled": True}
    made = ChartedAgent(node, agent.disk, {"extender": on, "webhook": on})
    made.prepare()
    made.install()
    try:
        yield made
    finally:
        made.release.uninstall("--ignore-not-found")


@pytest.mark.parametrize("part", ["extender", "webhook"])
def test_a_pod_of_the_chart_is_ready(charted: ChartedAgent, node: RealNode, part: str) -> None:
    with running(charted, node, part) as status:
        assert [one["restartCount"] for one in status["containerStatuses"]] == [0]


def test_the_extenders_pod_explains_why_a_pod_waits(
    charted: ChartedAgent, node: RealNode, pods: RealPods
) -> None:
    """The command of docs/troubleshooting.md, after `--`."""
    pods.create(pod("waits", container("main", "true", 900, 1), schedulerName="nobody"))
    described = pods.described("waits")
    with running(charted, node, "extender") as status:
        ask_extender(described)

        ended, said = node.execute(status, "gpumanager", "explain", "default/waits")

    assert ended == 0, said
    assert "default/waits is pending: no node fits" in said
    assert "9 whole GPUs with 1 block asked; this machine has 8" in said


@contextmanager
def running(charted: ChartedAgent, node: RealNode, part: str) -> Iterator[Object]:
    """The status of a Deployment's pod while it is ready."""
    name = f"{POD.removesuffix('-agent')}-{part}"
    kept = (one for one in charted.release.manifest if one["kind"] == "Deployment")
    (deployment,) = (one for one in kept if one["metadata"]["name"] == name)
    described = pod_of(as_stored(node.api, deployment), name)
    aliases = [{"ip": "127.0.0.1", "hostnames": [f"{name}.kube-system.svc"]}]
    described["spec"] |= {"hostNetwork": True, "hostAliases": aliases}
    (main,) = described["spec"]["containers"]
    main["env"] = [*main.get("env", ()), *API]
    uid = node.api.create(PODS, described)["metadata"]["uid"]
    try:
        yield wait_for(lambda: ready(node, name), f"{name} is ready")
    except AssertionError as error:
        raise AssertionError(f"{error}; it says: {log(name, uid, part)}") from None
    finally:
        node.api.delete(f"{PODS}/{name}", 0)


def ask_extender(pod: Object) -> None:
    """As kube-scheduler, which the chart does not bring here; the page's command does the rest."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    body = json.dumps({"Pod": pod, "NodeNames": [NODE]}).encode()
    url = f"https://127.0.0.1:{EXTENDER_PORT}/scheduler/filter"
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30, context=trusting) as answer:
        assert not json.load(answer)["NodeNames"]


def ready(node: RealNode, name: str) -> Object | None:
    """Its status, once its readiness probe has succeeded."""
    found: Object = (silent(lambda: node.api.get(f"{PODS}/{name}")) or {}).get("status", {})
    met = {one["type"] for one in found.get("conditions", ()) if one["status"] == "True"}
    return found if "Ready" in met else None


def log(name: str, uid: str, container: str) -> str:
    files = sorted(LOGS.glob(f"kube-system_{name}_{uid}/{container}/*.log"))
    return "\n".join(file.read_text(errors="replace") for file in files)[-2000:]
