"""GPUs, and what the journal says of them, for the tests of this folder."""

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, Share, State
from gpumanager.ids import AllocationID, PodUID
from gpumanager.node_status.service import Facts
from gpumanager.units import GIB, Bytes


def gpu(index: int, model: str = "Tesla V100-SXM2-16GB", memory: int = 16 * GIB) -> Gpu:
    """minor: not the index, so that one taken for the other shows."""
    uuid = GpuUUID(f"GPU-{index:08d}-0000-0000-0000-000000000000")
    return Gpu(index, index + 4, uuid, f"0000:0{index}:00.0", model, Bytes(memory), index % 2)


def two_gpus() -> Topology:
    bond = Bond(Level.PHB, 2)
    return topology([gpu(0), gpu(1)], [[None, bond], [bond, None]])


def granted(uid: str, *gpus: Gpu, container: str = "main", state: State = State.CONFIRMED) -> Grant:
    return Grant(
        id=AllocationID(f"{uid}-{container}"),
        source=DevicePluginSource(uid),
        shares={one.uuid: Share(10, 1) for one in gpus},
        state=state,
        pod=Claimant(PodUID(uid), "default", "p", container),
    )


def facts(*allocations: Grant) -> Facts:
    return Facts(two_gpus(), allocations)
