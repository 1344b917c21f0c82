"""Of two replicas one leads, and the other takes over when it is gone."""

from typing import Any

import pytest

from gpumanager.kube.lease import LeaderElection, LeaseTimes
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.in_memory import ManualClock
from tests.kube.kube_clients import client_of

pytest_plugins = ["tests.kube.api_fixtures"]

TIMES = LeaseTimes(duration=15, deadline=10, retry=2)
LEASE = Key("leases", "kube-system", "extender")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


def replica(server: SimulatedApiServer, clock: ManualClock, us: str, **more: Any) -> LeaderElection:
    api = client_of(server)
    return LeaderElection(api, "kube-system", "extender", us, times=TIMES, clock=clock, **more)


async def test_the_first_leads_and_the_second_waits(
    server: SimulatedApiServer, clock: ManualClock
) -> None:
    first, second = replica(server, clock, "first"), replica(server, clock, "second")

    await first.attempt()
    await second.attempt()

    assert (first.leads, second.leads) == (True, False)
    assert second.holder == "first"


async def test_who_does_not_renew_stops_before_others_begin(
    server: SimulatedApiServer, clock: ManualClock
) -> None:
    first, second = replica(server, clock, "first"), replica(server, clock, "second")
    await first.attempt()
    await second.attempt()

    clock.now += 10.0
    await second.attempt()
    assert (first.leads, second.leads) == (False, False)

    clock.now += 5.0
    await second.attempt()
    assert (first.leads, second.leads) == (False, True)
    assert server.objects.get(LEASE)["spec"]["leaseTransitions"] == 2


async def test_renewing_keeps_others_out(server: SimulatedApiServer, clock: ManualClock) -> None:
    first, second = replica(server, clock, "first"), replica(server, clock, "second")
    for _ in range(20):
        await first.attempt()
        await second.attempt()
        clock.now += 4.0

    assert first.leads
    assert not second.leads


async def test_a_write_in_between_is_not_overwritten(
    server: SimulatedApiServer, clock: ManualClock
) -> None:
    first, second, third = (replica(server, clock, us) for us in ("first", "second", "third"))
    await first.attempt()
    for one in (second, third):
        await one.attempt()
    clock.now += 16.0
    find = third._api.find

    async def slow(path: str) -> Any:
        """The second one writes between the third one's reading and writing."""
        found = await find(path)
        await second.attempt()
        return found

    third._api.find = slow  # type: ignore[method-assign]
    await third.attempt()

    assert (second.leads, third.leads) == (True, False)
    assert server.objects.get(LEASE)["spec"]["holderIdentity"] == "second"


async def test_an_api_server_that_is_away_ends_it_in_time(
    server: SimulatedApiServer, clock: ManualClock
) -> None:
    told: list[bool] = []
    first = replica(server, clock, "first", changed=told.append)
    await first.attempt()
    await server.stop()

    clock.now += 9.0
    await first.attempt()
    assert first.leads
    clock.now += 2.0
    await first.attempt()

    assert not first.leads
    assert told == [True, False]


async def test_who_leaves_gives_it_back(server: SimulatedApiServer, clock: ManualClock) -> None:
    first, second = replica(server, clock, "first"), replica(server, clock, "second")
    await first.attempt()

    await first._release()
    await second.attempt()

    assert (first.leads, second.leads) == (False, True)
