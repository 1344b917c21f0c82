"""Registration of drivers, which of their instances is called, and the node's ResourceSlices."""

import pytest

from gpumanager.dra import wire
from tests.contracts.dra.claims_kubelet import DRIVER
from tests.contracts.dra.claims_stage import SYNC_SECONDS, ClaimsStage, pod

NOT_REGISTERED = f"DRA driver {DRIVER} is not registered"
REASON = "FailedPrepareDynamicResources"


async def test_a_driver_is_asked_who_it_is_and_told_that_it_is_registered(
    stage: ClaimsStage,
) -> None:
    assert stage.driver.asked >= 1
    assert stage.driver.told == [(True, "")]


@pytest.mark.parametrize(
    ("versions", "called"),
    [
        (["v1.DRAPlugin", "v1beta1.DRAPlugin"], "v1.DRAPlugin"),
        (["v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1.DRAPlugin"),
        (["v9.DRAPlugin", "v1beta1.DRAPlugin"], "v1beta1.DRAPlugin"),
    ],
)
async def test_the_first_version_that_a_driver_names_and_the_kubelet_knows_is_called(
    stage: ClaimsStage, versions: list[str], called: str
) -> None:
    other = stage.instance("", name="other.contract.example")
    other.versions = [*versions, *wire.HEALTH_SERVICES]
    await other.start()
    await stage.registered(other)
    await stage.claim("versions", driver=other.name)

    await stage.run(pod("versions", "versions"))

    assert {call.service for call in other.called("prepare")} == {called}


async def test_an_instance_cannot_take_the_endpoint_of_another(stage: ClaimsStage) -> None:
    second = stage.instance("-second")
    second.advertises = stage.driver.endpoint
    await second.start()
    await stage.soon(lambda: second.told)

    taken, error = second.told[0]
    assert not taken
    assert error == (
        "RegisterPlugin error -- plugin registration failed with err: endpoint "
        f"{stage.driver.endpoint} already registered for DRA driver plugin {DRIVER}"
    )
    await second.stop()
    await stage.claim("kept")
    await stage.run(pod("kept", "kept"))
    assert stage.driver.prepared() == [{"kept"}]


async def test_a_driver_that_was_refused_is_asked_again(stage: ClaimsStage) -> None:
    other = stage.instance("", name="other.contract.example")
    other.versions = []
    await other.start()
    await stage.soon(lambda: other.told)
    assert not other.told[0][0]

    other.versions = stage.driver.versions

    await stage.soon(lambda: other.told[-1] == (True, ""), step=1.0)


async def test_files_that_are_no_sockets_and_hidden_sockets_are_left_alone(
    stage: ClaimsStage,
) -> None:
    (stage.driver.door.parent / "no-socket").touch()
    hidden = stage.instance("-hidden")
    hidden.door = hidden.door.with_name(".hidden.sock")
    await hidden.start()
    later = stage.instance("-later")

    await later.start()
    await stage.registered(later)

    assert hidden.asked == 0
    (stage.driver.door.parent / "no-socket").unlink()


async def test_the_instance_that_registered_last_is_called_until_it_ends(
    stage: ClaimsStage,
) -> None:
    second = stage.instance("-second")
    await second.start()
    await stage.registered(second)
    await stage.claim("new")
    await stage.claim("old")
    new = await stage.run(pod("new", "new"))
    assert (stage.driver.prepared(), second.prepared()) == ([], [{"new"}])

    await second.stop()
    await stage.soon(lambda: not second.watchers)
    await stage.run(pod("old", "old"))
    await stage.delete(new)
    await stage.soon(lambda: stage.kubelet.gone(new), SYNC_SECONDS)

    assert stage.driver.prepared() == [{"old"}]
    assert stage.driver.unprepared() == [{"new"}]


async def test_a_connected_instance_is_preferred_to_a_newer_one_that_does_not_answer(
    stage: ClaimsStage,
) -> None:
    second = stage.instance("-second")
    await second.start()
    await stage.registered(second)
    await second.hang_up()
    await stage.soon(lambda: not second.watchers)
    await stage.claim("steady")

    await stage.run(pod("steady", "steady"))

    assert stage.driver.prepared() == [{"steady"}]


async def test_a_driver_whose_socket_is_gone_from_the_registry_is_not_called(
    stage: ClaimsStage,
) -> None:
    stage.driver.door.unlink()
    await stage.soon(lambda: not stage.driver.watchers)
    await stage.claim("late")

    uid = await stage.start(pod("late", "late"))

    assert (await stage.not_started(uid, REASON)).endswith(NOT_REGISTERED)
    await stage.driver.open_door()
    await stage.registered(stage.driver)
    await stage.soon(lambda: stage.driver.prepared() == [{"late"}], SYNC_SECONDS)


async def test_a_socket_that_is_made_anew_is_a_new_registration(stage: ClaimsStage) -> None:
    await stage.driver.replace_door()

    await stage.soon(lambda: len(stage.driver.told) == 2)
    await stage.registered(stage.driver)
    await stage.claim("anew")
    await stage.run(pod("anew", "anew"))

    assert stage.driver.prepared() == [{"anew"}]


async def test_a_starting_kubelet_deletes_all_slices_of_its_node(stage: ClaimsStage) -> None:
    await stage.kubelet.publish("own")
    await stage.kubelet.publish("foreign", driver="foreign.contract.example")

    await stage.kubelet.restart()

    async def none() -> bool:
        return await stage.kubelet.slices() == set()

    await stage.soon(none)
    await stage.registered(stage.driver)


async def test_slices_of_a_driver_are_deleted_when_it_has_been_away_for_30_seconds(
    stage: ClaimsStage,
) -> None:
    await stage.kubelet.publish("own")
    await stage.kubelet.publish("foreign", driver="foreign.contract.example")
    since = stage.kubelet.now()

    await stage.driver.hang_up()

    async def only_foreign() -> bool:
        return await stage.kubelet.slices() == {"foreign"}

    await stage.soon(only_foreign, step=5.0)
    assert stage.kubelet.now() - since >= 30
    await stage.driver.stop()


async def test_a_driver_that_comes_back_in_time_keeps_its_slices(stage: ClaimsStage) -> None:
    await stage.kubelet.publish("own")

    await stage.driver.stop()
    await stage.soon(lambda: not stage.driver.watchers)
    await stage.driver.start()
    await stage.soon(lambda: len(stage.driver.told) == 2)
    await stage.registered(stage.driver)
    await stage.kubelet.wait(40)

    assert await stage.kubelet.slices() == {"own"}


async def test_another_instance_keeps_the_slices(stage: ClaimsStage) -> None:
    await stage.kubelet.publish("own")
    second = stage.instance("-second")
    await second.start()
    await stage.registered(second)

    await stage.driver.stop()
    await stage.soon(lambda: not stage.driver.watchers)
    await stage.kubelet.wait(40)

    assert await stage.kubelet.slices() == {"own"}
    await second.stop()
