"""How well claims pack while pods come and go: `python benchmarks/claims_churn.py --help`.

Nodes with eight GPUs, shares of 10 to 70 cores that come and leave by chance, and the simulated
scheduler, which allocates as kube-scheduler does (`tests/contracts/claims`) and takes any of the
nodes that score best. After each change the node's slice is written anew. Counted are the GPUs in
use beyond the least that would do: all cores that are given away, over 100, rounded up.

  stock      nothing of ours: GPUs as they are numbered
  order      the slice in the order of placement, as the agent publishes it
  tiers      that, and requests with two alternatives, as the webhook writes them
  extender   the slice's order, and nodes scored by `gpumanager extender`, by its own code
  both       of the nodes that score best by tiers the extender's best
"""

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from machine_line import machine_line
from rich.console import Console
from rich.table import Table

from gpumanager.dra.slice import NodeGpus, resource_slice
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.kube.claims import device_name
from gpumanager.kube.pod import read_pod
from gpumanager.names import CLAIM_DEVICE_CLASS, CLAIM_DRIVER
from gpumanager.placement.values import FreeGpus, Request
from gpumanager.scheduler.claims.cache import ClaimCache
from gpumanager.scheduler.claims.template import ClaimShape, RequestShape
from gpumanager.scheduler.scoring.verdicts import Verdicts, prioritize
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.watching import PodWatch, node_store
from gpumanager.sim.claims.allocator import CannotSchedule
from gpumanager.sim.claims.scheduler import schedule
from gpumanager.units import CORES_PER_GPU, GIB, Bytes

STOCK, ORDER, TIERS, EXTENDER, BOTH = SETTINGS = "stock", "order", "tiers", "extender", "both"
TIERED: Final = (TIERS, BOTH)
GPUS: Final = 8
SIZES: Final = (10, 20, 30, 50, 70)
BLOCKS: Final = 1
SETTLED: Final = 1 / 3
"""Part of the steps after which is counted."""
CLASS: Final = {
    "metadata": {"name": CLAIM_DEVICE_CLASS},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{CLAIM_DRIVER}'"}}]},
}


def machine(node: str) -> Topology:
    """Two GPUs to an NVLink pair, four to a NUMA node."""

    def bond(a: int, b: int) -> Bond | None:
        links = 4 if a // 2 == b // 2 else 0
        return None if a == b else Bond(Level.NODE if a // 4 == b // 4 else Level.SYS, links)

    cards = [
        Gpu(n, n, GpuUUID(f"GPU-{node}-{n}"), f"{n:02x}", "T4", Bytes(16 * GIB), n // 4)
        for n in range(GPUS)
    ]
    return topology(cards, [[bond(a, b) for b in range(GPUS)] for a in range(GPUS)])


@dataclass(slots=True)
class Learned:
    """The extender's own parts, told of objects as its informers would."""

    state: ClusterState = field(init=False)
    claims: ClaimCache = field(init=False)
    pods: PodWatch = field(init=False)
    verdicts: Verdicts = field(init=False)

    def __post_init__(self) -> None:
        mix = WorkloadMix()
        self.state = ClusterState(habits=mix)
        self.claims = ClaimCache(self.state.offer)
        self.pods = PodWatch(self.state, self.claims.shape_of)
        self.verdicts = Verdicts(self.state, mix)

    def best(self, pod: Any, nodes: Sequence[str]) -> Sequence[str]:
        """Of these nodes."""
        ask = self.claims.shape_of(read_pod(pod), waiting=True)
        if ask is None or not (scores := prioritize(self.verdicts.of(ask), nodes)):
            return nodes
        return [one for one in nodes if one in scores[0][1]]


@dataclass(slots=True)
class Cluster:
    """nodes: how many. setting: one of SETTINGS."""

    nodes: int
    setting: str
    chance: random.Random
    extender: Learned = field(default_factory=Learned)
    _machines: dict[str, Topology] = field(init=False)
    _devices: dict[str, Sequence[Any]] = field(init=False, default_factory=dict)
    _claims: dict[str, Any] = field(init=False, default_factory=dict)
    _held: dict[str, tuple[str, str, Request]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._machines = {f"n{n}": machine(f"n{n}") for n in range(self.nodes)}
        self.extender.claims.stores["device classes"].put(CLASS)
        nodes = node_store(self.extender.state)
        for name in self._machines:
            nodes.put(self._node(name))
            self._publish(name)

    def add(self, name: str, cores: int) -> bool:
        """A pod with one claim; False where it fits nowhere, and it is gone again."""
        shape = ClaimShape((RequestShape("gpu", cores, BLOCKS),), tiers=self.setting in TIERED)
        spec = shape.template("default")["spec"]["spec"]
        metadata = {"name": name, "namespace": "default", "uid": name}
        claim = {"metadata": metadata, "spec": spec}
        used = [{"name": "gpu", "resourceClaimName": name}]
        pod = {"metadata": metadata, "spec": {"containers": [], "resourceClaims": used}}
        claims = self.extender.claims.stores["resource claims"]
        claims.put(claim)
        self.extender.pods.put(pod)
        try:
            found = schedule(
                pod,
                [self._node(one) for one in self._machines],
                [*self._claims.values(), claim],
                [CLASS],
                self._devices,
                choose=partial(self._choose, pod),
            )
        except CannotSchedule:
            self._gone(claim)
            return False
        (allocated,) = found.claims
        claims.put(allocated)
        (result,) = allocated["status"]["allocation"]["devices"]["results"]
        self._claims[name] = allocated
        self._held[name] = found.node, result["device"], Request(cores, BLOCKS)
        self._publish(found.node)
        return True

    def remove(self, name: str) -> None:
        self._gone(self._claims.pop(name))
        self._publish(self._held.pop(name)[0])

    def beyond_the_least(self) -> int:
        """GPUs in use more than would be needed; raises ValueError where one is given twice."""
        given: dict[tuple[str, str], int] = {}
        for node, device, request in self._held.values():
            given[node, device] = given.get((node, device), 0) + request.cores
        if max(given.values(), default=0) > CORES_PER_GPU:
            raise ValueError(f"more than {CORES_PER_GPU} cores of one GPU: {given}")
        return len(given) - math.ceil(sum(given.values()) / CORES_PER_GPU)

    def _gone(self, item: Mapping[str, Any]) -> None:
        self.extender.claims.stores["resource claims"].remove(item)
        self.extender.pods.remove(item)

    def _choose(self, pod: Any, best: Sequence[str]) -> str:
        if self.setting in (EXTENDER, BOTH):
            best = self.extender.best(pod, best)
        return self.chance.choice(best)

    def _node(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}}

    def _publish(self, name: str) -> None:
        """As the agent does after each change, or once and for all."""
        machine, free = self._machines[name], FreeGpus.of_idle(self._machines[name])
        gpus = {device_name(gpu.uuid): gpu for gpu in machine.gpus}
        for node, device, request in self._held.values():
            if node == name:
                free = free.occupy(gpus[device].uuid, request)
        found = resource_slice(name, "", NodeGpus(machine, free))
        if self.setting == STOCK:
            found["spec"]["devices"].sort(key=lambda one: gpus[one["name"]].index)
        self._devices[name] = found["spec"]["devices"]
        self.extender.claims.stores["resource slices"].put(found)


def churn(setting: str, nodes: int, steps: int, load: float, seed: int) -> float:
    """GPUs beyond the least, mean of the later steps."""
    chance = random.Random(seed)
    cluster = Cluster(nodes, setting, random.Random(f"{setting} {seed}"))
    most = load * nodes * GPUS * CORES_PER_GPU
    there: dict[str, int] = {}
    counts = []
    for step in range(steps):
        given = sum(there.values())
        if given > most or (given > most / 2 and chance.random() < 0.5):
            gone = chance.choice(sorted(there))
            cluster.remove(gone)
            del there[gone]
        else:
            cores = chance.choice(SIZES)
            if cluster.add(f"p{step}", cores):
                there[f"p{step}"] = cores
        if step > SETTLED * steps:
            counts.append(cluster.beyond_the_least())
    return statistics.mean(counts)


def show(found: Mapping[str, Sequence[float]], options: argparse.Namespace) -> None:
    size = f"{options.nodes} nodes of {GPUS} GPUs, {options.steps} steps, {len(options.seed)} seeds"
    table = Table(box=None, pad_edge=False, title=f"{machine_line()}; simulated: {size}")
    for title in ("setting", "GPUs beyond the least: mean", "deviation", "least", "most"):
        table.add_column(title, justify="left" if title == "setting" else "right")
    for name, means in found.items():
        spread = statistics.stdev(means) if len(means) > 1 else 0.0
        cells = statistics.mean(means), spread, min(means), max(means)
        table.add_row(name, *(f"{cell:.2f}" for cell in cells))
    Console().print(table)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--setting", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150, help="arrivals and departures")
    parser.add_argument("--load", type=float, default=0.55, help="of all cores, the most")
    parser.add_argument("--seed", type=int, nargs="+", default=list(range(11, 31)))
    parser.add_argument("--json", action="store_true", help="figures for programs")
    options = parser.parse_args(words)
    size = options.nodes, options.steps, options.load
    found = {one: [churn(one, *size, seed) for seed in options.seed] for one in options.setting}
    if options.json:
        print(json.dumps({"seeds": options.seed, "beyond_the_least": found}))
    else:
        show(found, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
