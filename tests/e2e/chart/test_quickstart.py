"""docs/quickstart.md, followed word by word on a real kubelet with the chart, with a stopwatch.

The commands are those of the page, run in its order by a shell, against the node's API server. What
stands for something else, by programs of the reader's names (`programs`): `docker push` names the
image of a release, which containerd has already, as a registry would. `helm install` gets the
values of this node, and does not wait, as nobody makes the DaemonSet's pod but this test. `kubectl
logs` and the log of `helm test` are read from files, as API server and kubelet do not know each
other's certificates here. The pod's two images become that of the examples, with a program that
does the same.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gpumanager.sim.container.process import own_environment
from gpumanager.sim.gpu import SimulatedGpus
from tests import ROOT
from tests.chart import helm_program
from tests.docs import newcomer
from tests.docs.pages import DOCS, Block, blocks
from tests.e2e.chart.real_chart import ChartedAgent
from tests.e2e.chart.real_release import skip_if_too_old
from tests.e2e.node import agent_image
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import NODE, RealNode
from tests.e2e.node_fixtures import Facts

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

PAGE: Final = DOCS / "quickstart.md"
LAST: Final = "When a step fails"
IMAGES: Final = {
    "cuda-sample": ["cuda-play", "launch", "--kernel", "2ms", "--seconds", "1"],
    "nvidia/cuda": ["cuda-play", "query"],
}
"""What stands for programs of images, by a part of the image's name."""
LOG: Final = "cat /var/log/pods/{}_*/*/*.log | sed 's/^[^ ]* [^ ]* [^ ]* //'"


@pytest.fixture(scope="module")
def charted(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> Iterator[ChartedAgent]:
    """What there is before the page's third step: no agent, no label, the image."""
    node, agent, _ = stage
    skip_if_too_old(node)
    if helm_program.found() is None or shutil.which("kubectl") is None:
        pytest.skip("the page needs helm and kubectl")
    made = ChartedAgent(node, agent.disk)
    made.prepare()
    node.api.ask(
        "PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"tencent.com/gpu": None}}},
        "merge-patch+json",
    )  # fmt: skip
    agent.stop()
    try:
        yield made
    finally:
        made.stop()
        made.release.uninstall("--ignore-not-found")
        agent.start()
        agent.wait_until_advertised()


def programs(folder: Path, charted: ChartedAgent, node: RealNode) -> Path:
    """`helm`, `kubectl` and `docker` for this node."""
    folder.mkdir()
    image = agent_image.name()
    tag = f"ctr --address {node.containerd_socket} --namespace k8s.io images tag --force {image}"
    helm, kubectl = helm_program.found(), shutil.which("kubectl")
    said = {
        "docker": f"""\
[ "$1" != push ] || {tag} "${{2%:*}}:{image.rpartition(":")[2]}"
""",
        "helm": f"""\
case "$1" in
install) set -- "$@" --values {charted.values}; first=$1; shift
    for word; do shift; [ "$word" = --wait ] || set -- "$@" "$word"; done
    exec {helm} "$first" "$@" ;;
test) {helm} test "$2" --namespace kube-system && {LOG.format("kube-system_$2-test")} ;;
*) exec {helm} "$@" ;;
esac""",
        "kubectl": f"""\
case "$1" in
logs) {LOG.format("default_$2")} ;;
*) exec {kubectl} "$@" ;;
esac""",
    }
    for name, text in said.items():
        (folder / name).write_text(f"#!/bin/sh\nset -e\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def steps() -> Iterator[Block]:
    """The page's blocks in its order, up to what is for when a step fails, then the last one."""
    lines = PAGE.read_text().splitlines()
    start, end = (lines.index(f"## {heading}") for heading in (LAST, "Remove it"))
    for block in blocks(PAGE):
        if block.mark == "cluster" and not start < block.line < end:
            yield Block(block.page, block.line, block.words, re.sub(r"\bNODE\b", NODE, block.text))


def first_pod() -> Mapping[str, Any]:
    """The page's, with the image of the examples."""
    (block,) = (one for one in blocks(PAGE) if one.language == "yaml")
    pod: Mapping[str, Any] = yaml.safe_load(block.text)
    for container in pod["spec"]["containers"]:
        (does,) = (command for image, command in IMAGES.items() if image in container["image"])
        container |= {"image": "local", "imagePullPolicy": "Never", "command": does}
    return pod


def test_the_page_leads_from_the_image_to_a_pod_with_a_share(
    charted: ChartedAgent, node: RealNode, agent: RealAgent, facts: Facts, tmp_path: Path
) -> None:
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "first-share.yaml").write_text(yaml.safe_dump(dict(first_pod())))
    own = own_environment()
    environment = {
        **own,
        "PATH": f"{programs(tmp_path / 'programs', charted, node)}:{own['PATH']}",
        "KUBECONFIG": str(node.kubeconfig("admin")),
        **{f"HELM_{kind}_HOME": str(tmp_path / "helm") for kind in ("CACHE", "CONFIG", "DATA")},
        "HOME": str(tmp_path),
    }
    said: dict[str, str] = {}
    for block in steps():
        step = newcomer.run(block, tmp_path, environment)
        facts["seconds"][f"quickstart: {step.command}"] = round(step.seconds, 1)
        assert step.status == 0, f"{step}\n{step.said}"
        said[step.command] = step.said
        if "helm install" in block.text:
            charted.start()
            agent.wait_until_advertised()

    def after(command: str) -> str:
        (found,) = (text for begun, text in said.items() if begun.startswith(command))
        return found

    assert re.search(r"tencent.com/vcuda-core: +800\n", after("kubectl describe node"))
    assert "the limit holds: 1 GiB" in after("helm test")
    assert "free of 2 GiB" in after("kubectl apply")
    assert "a share of" in after("kubectl apply")
    assert "tencent.com/gpu-assigned" in after("kubectl get pod first-share")
