"""What holds of every back end in the table, whatever it does."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import DevicePluginSource, Grant, Share
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ENV_ALLOCATION, ENV_GPUS, DeviceFiles, Mount
from gpumanager.isolation.table import ROWS, BackEnd, Isolations, isolation_of
from gpumanager.limits.values import Limit
from gpumanager.sim.in_memory import SimulatedLimits
from gpumanager.units import GIB, MEMORY_BLOCK, Bytes
from gpumanager.volume.values import DriverVolumes

GPU = Gpu(0, 0, GpuUUID("GPU-0"), "0000:00:00.0", "Tesla T4", Bytes(4 * GIB), 0)
NAME = AllocationID("a1")
SHARES = tuple(Share(cores, 4) for cores in (1, 10, 50, 99, 100))


def isolations(virtual: SimulatedLimits) -> Isolations:
    volumes = DriverVolumes(
        Path("/vol/nvidia"), Path("/vol/compute"), Path("/vol/origin"), "555.58.02"
    )
    return Isolations(virtual, volumes, DeviceFiles(control_if_present=()))


def grant(share: Share, isolation: str) -> Grant:
    return Grant(NAME, DevicePluginSource("pod"), {GPU.uuid: share}, isolation=isolation)


def an_example(row: BackEnd) -> Grant:
    """Of what the row is for."""
    share = next(one for one in SHARES if isolation_of({GPU.uuid: one}) == row.name)
    return grant(share, row.name)


def test_every_share_has_a_back_end_and_every_back_end_a_share_and_a_name() -> None:
    found = {isolation_of({GPU.uuid: share}) for share in SHARES}

    assert found == {row.name for row in ROWS}
    assert len(found) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_container_gets_the_driver_its_gpus_and_its_name(row: BackEnd) -> None:
    edits = await isolations(SimulatedLimits()).prepare(an_example(row), (GPU,))

    assert edits.mounts[0].container_path == "/usr/local/nvidia"
    assert edits.devices[0].host_path == "/dev/nvidia0"
    assert (edits.envs[ENV_GPUS], edits.envs[ENV_ALLOCATION]) == (GPU.uuid, NAME)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_to_prepare_and_to_release_twice_is_to_do_it_once(row: BackEnd) -> None:
    virtual, one = SimulatedLimits(), an_example(row)
    back_ends = isolations(virtual)

    first = await back_ends.prepare(one, (GPU,))
    held = dict(virtual.open_now)
    assert await back_ends.prepare(one, (GPU,)) == first
    assert virtual.open_now == held
    await back_ends.release(NAME)
    await back_ends.release(NAME)

    assert virtual.allocations() == ()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_grant_that_changes_is_held_as_it_is_prepared(row: BackEnd) -> None:
    prepared, updated = SimulatedLimits(), SimulatedLimits()
    one = an_example(row)

    await isolations(prepared).prepare(one, (GPU,))
    await isolations(updated).update(one)

    assert prepared.open_now == updated.open_now


async def test_the_shim_holds_a_container_to_its_share_and_to_its_ceiling() -> None:
    virtual = SimulatedLimits()
    one = replace(grant(Share(30, 4), "shim"), ceiling=60)

    await isolations(virtual).update(grant(Share(30, 4), "shim"))
    plain = virtual.limits(NAME)
    await isolations(virtual).update(one)

    memory = Bytes(4 * MEMORY_BLOCK)
    assert plain == (Limit(GPU.uuid, memory, 30, 30),)
    assert virtual.limits(NAME) == (Limit(GPU.uuid, memory, 30, 60),)


async def test_a_grant_that_none_of_ours_holds_is_left_alone() -> None:
    virtual = SimulatedLimits()
    back_ends = isolations(virtual)

    await back_ends.update(grant(Share(30, 4), ""))

    assert virtual.allocations() == ()
    assert back_ends.usage(grant(Share(30, 4), "")) is None


async def test_turns_are_mounted_behind_the_directory_that_they_lie_in() -> None:
    one = grant(Share(30, 4), "shim")

    plain = (await isolations(SimulatedLimits()).prepare(one, (GPU,))).mounts
    turns = (await isolations(SimulatedLimits(takes_turns=True)).prepare(one, (GPU,))).mounts

    places = [mount.container_path for mount in turns]
    assert set(turns) - set(plain) == {Mount("/etc/vcuda/turns", f"/vm/turns/{NAME}")}
    assert places.index("/etc/vcuda") < places.index("/etc/vcuda/turns")
