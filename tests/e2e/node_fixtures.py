"""A real node for the tests of this folder: brought up once, taken down whatever happens.

It needs the namespaces that `make e2e` makes; without them every test here is skipped, aloud.
What ran, on which versions and how long each step took is printed and written as JSON.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.sim.host import furnish, make_disk
from gpumanager.sim.machine import Machine
from gpumanager.sim.machines import load_machine
from tests.e2e.cluster.real_scheduler import RealScheduler
from tests.e2e.node import enclosure, node_programs, node_runtime
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import CHEAT, RealPods

MACHINE: Final = "dgx-a100"
REPORT: Final = "GPUMANAGER_E2E_REPORT"
OUTSIDE: Final = "runs within the namespaces that `make e2e` makes"

Facts = dict[str, Any]
FACTS: Final = pytest.StashKey[Facts]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FACTS] = {"versions": {}, "seconds": {}, "tests": {}}


@pytest.fixture(scope="session")
def facts(request: pytest.FixtureRequest) -> Facts:
    """What the report says beside the tests' outcomes."""
    return request.config.stash[FACTS]


@pytest.fixture(scope="session")
def stage(facts: Facts) -> Iterator[tuple[RealNode, RealAgent, SimulatedGpus]]:
    """The node, its agent and its GPUs."""
    if enclosure.DIRECTORY not in os.environ:
        pytest.skip(OUTSIDE)
    began = time.monotonic()

    def reached(what: str) -> None:
        facts["seconds"][f"start until {what}"] = round(time.monotonic() - began, 1)

    with ExitStack() as last_first:
        disk = make_disk()
        last_first.callback(disk.remove)
        machine = within(load_machine(MACHINE), numa_nodes())
        gpus = furnish(disk, machine)
        last_first.callback(gpus.close)
        folder = Path(os.environ[enclosure.DIRECTORY])
        control = gpus.device_directory / "nvidiactl"
        node = RealNode(node_programs.programs(node_programs.wanted()), folder, control)
        facts["versions"] |= node.versions
        last_first.callback(node.stop)
        node.start(reached)
        agent = RealAgent(node, disk, machine)
        last_first.callback(agent.stop)
        agent.start()
        reached("agent registered")
        agent.wait_until_advertised()
        reached("resources advertised")
        yield node, agent, gpus
        assert not [one for one in agent.accusations() if CHEAT not in one]


def numa_nodes() -> list[int]:
    """Of this host; a kubelet ignores what devices say of any other."""
    found = Path("/sys/devices/system/node").glob("node[0-9]*")
    return sorted(int(one.name.removeprefix("node")) for one in found) or [0]


def within(machine: Machine, nodes: list[int]) -> Machine:
    """The machine with its GPUs on these NUMA nodes, the first ones on the first."""
    count = len(machine.topology.gpus)
    gpus = tuple(
        replace(gpu, numa_node=nodes[position * len(nodes) // count])
        for position, gpu in enumerate(machine.topology.gpus)
    )
    return replace(machine, topology=replace(machine.topology, gpus=gpus))


@pytest.fixture
def node(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> RealNode:
    return stage[0]


@pytest.fixture
def agent(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> RealAgent:
    return stage[1]


@pytest.fixture
def gpus(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> SimulatedGpus:
    return stage[2]


@pytest.fixture
def pods(node: RealNode) -> Iterator[RealPods]:
    """Pods that go with the test."""
    made = RealPods(node.api)
    yield made
    made.delete()


@pytest.fixture(scope="session")
def claims_node(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> RealNode:
    """The node, where claims of shares come as far as into containers."""
    node = stage[0]
    if node.minor < FIRST_WITH_SHARED_DEVICES:
        pytest.skip(f"Kubernetes {node.version} shares no device by claims")
    if not node.has_controllers:
        pytest.skip(f"there is no {node_programs.CONTROLLERS} beside the kubelet")
    if node_runtime.major() < FIRST_WITH_CDI:
        pytest.skip(f"containerd {node_runtime.version()} ignores CDI: make e2e CONTAINERD=2")
    return node


FIRST_WITH_SHARED_DEVICES: Final = 36
FIRST_WITH_CDI: Final = 2
"""Version 1.7 of containerd has it too, but not by itself."""


@pytest.fixture(scope="session")
def scheduler(
    stage: tuple[RealNode, RealAgent, SimulatedGpus], facts: Facts
) -> Iterator[RealScheduler]:
    """A kube-scheduler that asks our extender, beside the node's own."""
    if stage[0].minor < FIRST_AS_DOCUMENTED:
        pytest.skip(f"kube-scheduler {stage[0].version} reads no v1 of its configuration")
    began = time.monotonic()
    made = RealScheduler(stage[0])
    try:
        made.start()
        facts["seconds"]["until kube-scheduler asks the extender"] = round(
            time.monotonic() - began, 1
        )
        yield made
    finally:
        made.stop()


FIRST_AS_DOCUMENTED: Final = 25


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        outcome = {"outcome": report.outcome, "seconds": round(report.duration, 1)}
        OUTCOMES[report.nodeid.partition("::")[2]] = outcome | dict(report.user_properties)


OUTCOMES: Final[dict[str, Facts]] = {}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The report, where a node ran."""
    facts = config.stash[FACTS] | {"machine": MACHINE, "tests": OUTCOMES}
    if not facts["versions"]:
        return
    terminalreporter.section("a real node")
    for part, version in facts["versions"].items():
        terminalreporter.line(f"{part:>12}  {version}")
    for what, seconds in facts["seconds"].items():
        terminalreporter.line(f"{seconds:>10} s  {what}")
    for name, outcome in OUTCOMES.items():
        terminalreporter.line(f"{outcome['seconds']:>10} s  {outcome['outcome']}  {name}")
    if path := os.environ.get(REPORT):
        Path(path).write_text(json.dumps(facts, indent=2) + "\n")
