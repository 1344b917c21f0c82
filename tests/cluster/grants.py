"""GPUs, and what the journal says of them, for the tests of this folder."""

from gpumanager.cluster.service import Facts
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.grants.journal import Allocation, Claimant, State
from gpumanager.kubelet.pods import PodUID
from gpumanager.placement.values import Evaluator
from gpumanager.units import GIB, Bytes
from gpumanager.virtual.values import AllocationID


def gpu(index: int, model: str = "Tesla V100-SXM2-16GB", memory: int = 16 * GIB) -> Gpu:
    """minor: not the index, so that one taken for the other shows."""
    uuid = GpuUUID(f"GPU-{index:08d}-0000-0000-0000-000000000000")
    return Gpu(index, index + 4, uuid, f"0000:0{index}:00.0", model, Bytes(memory), index % 2)


def two_gpus() -> Topology:
    bond = Bond(Level.PHB, 2)
    return topology([gpu(0), gpu(1)], [[None, bond], [bond, None]])


def granted(
    uid: str, *gpus: Gpu, container: str = "main", state: State = State.SETTLED
) -> Allocation:
    return Allocation(
        allocation=AllocationID(f"{uid}-{container}"),
        admission=uid,
        core_ids=(),
        memory_ids=(),
        gpus=tuple(one.uuid for one in gpus),
        evaluator=Evaluator.SHARE,
        why="",
        time=0.0,
        state=state,
        pod=Claimant(PodUID(uid), "default", "p", container),
    )


def facts(*allocations: Allocation) -> Facts:
    return Facts(two_gpus(), allocations)
