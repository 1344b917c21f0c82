"""Workloads from the generator, and what a policy makes of them."""

from gpumanager.sim.trace.baselines import policies
from gpumanager.sim.trace.fgd import Fgd, typical_of
from gpumanager.sim.trace.order import arrange
from gpumanager.sim.trace.outcome import Recorder
from gpumanager.sim.trace.replay import Replay
from gpumanager.sim.trace.synthetic import MIXES, make_nodes, make_pods
from gpumanager.sim.trace.values import Workload


def made_up(mix: str = "mixed", nodes: int = 30, seed: int = 5, load: float = 1.2) -> Workload:
    found = make_nodes(nodes, seed)
    return arrange(found, make_pods(found, MIXES[mix], seed), load, seed)


def allocation(workload: Workload, name: str, seed: int = 5) -> float:
    policy = policies(seed)[name]
    mix = typical_of(workload.pods) if isinstance(policy, Fgd) else None
    replay, recorder = Replay(workload, policy, seed, mix=mix), Recorder(workload)
    for step in replay.run():
        recorder.saw(step)
    return recorder.outcome(replay.rooms).allocation_percent
