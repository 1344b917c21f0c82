"""Of two replicas one leads, and the other takes over when it is gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube.lease import LeaderElection, LeaseRecord, LeaseTimes, may_take
from gpumanager.sim.clock import ManualClock
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import client_of

pytest_plugins = ["tests.scheduler.extender_fixtures"]

TIMES = LeaseTimes(duration=15, deadline=10, retry=2)
LEASE = Key("leases", "kube-system", "extender")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


def replica(api: SimulatedApiServer, clock: ManualClock, us: str) -> LeaderElection:
    server = client_of(api)
    return LeaderElection(server, "kube-system", "extender", us, times=TIMES, clock=clock)


async def test_the_first_leads_and_the_second_waits(
    api: SimulatedApiServer, clock: ManualClock
) -> None:
    first, second = replica(api, clock, "first"), replica(api, clock, "second")

    await first.attempt()
    await second.attempt()

    assert (first.leads, second.leads) == (True, False)
    assert second.holder == "first"


async def test_who_does_not_renew_stops_before_others_begin(
    api: SimulatedApiServer, clock: ManualClock
) -> None:
    first, second = replica(api, clock, "first"), replica(api, clock, "second")
    await first.attempt()
    await second.attempt()

    clock.now += 10.0
    await second.attempt()
    assert (first.leads, second.leads) == (False, False)

    clock.now += 5.0
    await second.attempt()
    assert (first.leads, second.leads) == (False, True)
    assert api.objects.get(LEASE)["spec"]["leaseTransitions"] == 2


async def test_renewing_keeps_others_out(api: SimulatedApiServer, clock: ManualClock) -> None:
    first, second = replica(api, clock, "first"), replica(api, clock, "second")
    for _ in range(20):
        await first.attempt()
        await second.attempt()
        clock.now += 4.0

    assert first.leads
    assert not second.leads


async def test_a_write_in_between_is_not_overwritten(
    api: SimulatedApiServer, clock: ManualClock
) -> None:
    first, second = replica(api, clock, "first"), replica(api, clock, "second")
    await first.attempt()
    await second.attempt()
    clock.now += 16.0
    third = replica(api, clock, "third")
    seen = await third._api.get(f"{third._all}/extender")
    await second.attempt()
    third._seen = LeaseRecord("first", seen["metadata"]["resourceVersion"], since=0.0)

    written = await third._write(third._seen.version, {"holderIdentity": "third"})

    assert written is False
    assert api.objects.get(LEASE)["spec"]["holderIdentity"] == "second"


async def test_an_api_server_that_is_away_ends_it_in_time(
    api: SimulatedApiServer, clock: ManualClock
) -> None:
    told: list[bool] = []
    first = replica(api, clock, "first")
    first._changed = told.append
    await first.attempt()
    await api.stop()

    clock.now += 9.0
    await first.attempt()
    assert first.leads
    clock.now += 2.0
    await first.attempt()

    assert not first.leads
    assert told == [True, False]


async def test_who_leaves_gives_it_back(api: SimulatedApiServer, clock: ManualClock) -> None:
    first, second = replica(api, clock, "first"), replica(api, clock, "second")
    await first.attempt()

    await first._release()
    await second.attempt()

    assert (first.leads, second.leads) == (False, True)


@given(st.floats(0, 100), st.floats(1, 60))
def test_only_its_holder_may_take_a_fresh_lease(age: float, duration: float) -> None:
    seen = LeaseRecord("other", "1", 0, duration, since=1000.0)

    assert may_take(seen, "other", 1000.0 + age)
    assert may_take(seen, "us", 1000.0 + age) == (1000.0 + age >= 1000.0 + duration)
