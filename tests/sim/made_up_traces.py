"""Workloads from the generator, and what a policy makes of them."""

from gpumanager.cli.replay import POLICIES
from gpumanager.sim.replay import Replay
from gpumanager.sim.trace import MIXES, Workload, arrange, make_nodes, make_pods


def made_up(mix: str = "mixed", nodes: int = 30, seed: int = 5, load: float = 1.2) -> Workload:
    found = make_nodes(nodes, seed)
    return arrange(found, make_pods(found, MIXES[mix], seed), load, seed)


def allocation(workload: Workload, name: str, seed: int = 5) -> float:
    return allocated_by(Replay(workload, POLICIES[name], seed))


def allocated_by(replay: Replay) -> float:
    return list(replay.run())[-1].allocated
