"""What every container runtime has to tell, whether simulated or real: plain checks for any test.

A test that has a runtime and a container running in it hands over both.
"""

from gpumanager.ids import ContainerID
from gpumanager.limits.processes import find
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.runtime.status import LiveContainer

UNKNOWN = ContainerID("0" * 64)


async def it_says_who_it_is(runtime: ContainerRuntime) -> None:
    version = await runtime.version()

    assert version.name
    assert version.version
    assert version.cri in {"v1", "v1alpha2"}


async def it_tells_what_a_container_was_started_with(
    runtime: ContainerRuntime, expected: LiveContainer
) -> None:
    """Of mounts, devices and variables at least these; the names exactly."""
    name = expected.container.container_id
    (told,) = [row for row in await runtime.list() if row.container.container_id == name]

    assert told.container == expected.container
    assert told.container in await runtime.containers()
    assert await runtime.status(name) == told
    assert set(expected.mounts) <= set(told.mounts)
    assert {one.container for one in expected.devices} <= {one.container for one in told.devices}
    assert expected.envs.items() <= told.envs.items()
    assert expected.annotations.items() <= told.annotations.items()


async def its_pid_is_a_process_that_lives(runtime: ContainerRuntime, name: ContainerID) -> None:
    told = await runtime.status(name)

    assert told is not None
    assert find(told.pid) is not None


async def it_does_not_list_one_that_has_ended(runtime: ContainerRuntime, name: ContainerID) -> None:
    assert name not in {one.container_id for one in await runtime.containers()}
    assert name not in {one.container.container_id for one in await runtime.list()}
    assert await runtime.status(name) is None


async def it_knows_nothing_of_an_unknown_one(runtime: ContainerRuntime) -> None:
    assert await runtime.status(UNKNOWN) is None
