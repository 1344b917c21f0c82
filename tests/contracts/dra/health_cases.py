"""What becomes of a device's health in the status of pods that have the device."""

from collections.abc import Mapping
from typing import Any

from gpumanager.dra.api import drahealth_v1_pb2 as pb
from tests.contracts.dra.claims_kubelet import ROW
from tests.contracts.dra.claims_stage import ClaimsStage, pod, uses
from tests.contracts.dra.stub_driver import KIND


async def rows(stage: ClaimsStage, uid: str, container: str = "main") -> dict[str, Any]:
    """Resources by name."""
    found = await stage.kubelet.health(uid, container)
    return {row["name"]: row["resources"] for row in found}


async def shows(stage: ClaimsStage, uid: str, wanted: Mapping[str, Any], step: float = 0) -> None:
    """Until the container's health is this."""

    async def same() -> bool:
        return await rows(stage, uid) == wanted

    await stage.soon(same, step)


async def test_a_devices_health_stands_in_the_status_of_its_container_until_it_changes(
    stage: ClaimsStage,
) -> None:
    await stage.claim("watched")
    uid = await stage.run(pod("watched", "watched"))
    name, resource = f"claim:{ROW}", f"{KIND}=watched"

    stage.driver.report("thing-0", pb.UNHEALTHY, "Xid 79")
    unhealthy = {"resourceID": resource, "health": "Unhealthy", "message": "Xid 79"}
    await shows(stage, uid, {name: [unhealthy]})

    stage.driver.report("thing-0", pb.HEALTHY)
    await shows(stage, uid, {name: [{"resourceID": resource, "health": "Healthy"}]})


async def test_health_is_by_the_requests_that_a_container_names(stage: ClaimsStage) -> None:
    await stage.claim("parts", "a", "b")
    stage.driver.devices["parts"] = [
        stage.driver.device("thing-0", "a", cdi="of-a"),
        stage.driver.device("thing-1", "b"),
    ]
    uid = await stage.run(pod("parts", "parts", containers=(uses("main", "a", "b"),)))

    stage.driver.report("thing-0", pb.HEALTHY)
    stage.driver.report("thing-1", pb.UNHEALTHY)

    without_cdi = f"{stage.driver.name}/pool/thing-1"
    await shows(
        stage,
        uid,
        {
            f"claim:{ROW}/a": [{"resourceID": f"{KIND}=of-a", "health": "Healthy"}],
            f"claim:{ROW}/b": [{"resourceID": without_cdi, "health": "Unhealthy"}],
        },
    )


async def test_a_report_that_is_not_repeated_holds_for_so_long_and_then_nothing_is_known(
    stage: ClaimsStage,
) -> None:
    await stage.claim("old")
    uid = await stage.run(pod("old", "old"))
    since = stage.kubelet.now()
    stage.driver.report("thing-0", pb.HEALTHY)
    known = {"resourceID": f"{KIND}=old", "health": "Healthy"}
    await shows(stage, uid, {f"claim:{ROW}": [known]})

    await shows(stage, uid, {f"claim:{ROW}": [{**known, "health": "Unknown"}]}, step=5)

    assert stage.kubelet.now() - since > 30


async def test_health_is_unknown_when_its_driver_has_gone(stage: ClaimsStage) -> None:
    await stage.claim("gone")
    uid = await stage.run(pod("gone", "gone"))
    stage.driver.report("thing-0", pb.HEALTHY)
    known = {"resourceID": f"{KIND}=gone", "health": "Healthy"}
    await shows(stage, uid, {f"claim:{ROW}": [known]})

    await stage.driver.hang_up()
    await shows(stage, uid, {f"claim:{ROW}": [{**known, "health": "Unknown"}]}, step=20)

    await stage.driver.serve()
    await shows(stage, uid, {f"claim:{ROW}": [known]}, step=5)


async def test_the_newest_health_service_that_both_know_is_watched(stage: ClaimsStage) -> None:
    other = stage.instance("", name="other.contract.example")
    other.versions = ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth"]
    await other.start()

    await stage.soon(lambda: other.watched == [stage.kubelet.version.dra_health[0]])
