"""What is said of claims, templates and classes when they are written."""

from typing import Any

import pytest

from gpumanager.kube.vcuda_config import API_VERSION, KIND
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, Unschedulable
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.scheduler.webhook.validate_claim import validate_claim
from tests.scheduler.claims.claim_texts import device_class, exactly, opaque, resource_claim
from tests.scheduler.webhook.review_texts import node_kind

PATH = "spec.devices.config[0].opaque.parameters"


def judged(item: Any, *, unschedulable: Unschedulable = Unschedulable.DENY) -> Decision:
    nodes = {node_kind(16), node_kind(80, 80)}
    return validate_claim(item["kind"], item, AdmissionPolicy(unschedulable=unschedulable), nodes)


def test_a_claim_as_it_should_be_is_let_in_without_a_word() -> None:
    asked = exactly(count=2, capacity={"requests": {"cores": "30", "memory": "2Gi"}})

    made = resource_claim([{"name": "gpu", "exactly": asked}], [opaque(coreLimit=60)])

    assert judged(made) == Decision()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"coreLimits": 60}, f"{PATH}.coreLimits: unknown field; did you mean coreLimit?"),
        ({"coreLimit": 101}, f"{PATH}.coreLimit: '101'; write 1 to 100, percent of a GPU"),
        (
            {"apiVersion": "gpu.tencent.com/v1"},
            f"{PATH}: parameters of another kind; write apiVersion: {API_VERSION}, kind: {KIND}",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_by_its_path_and_what_to_write(
    parameters: dict[str, Any], said: str
) -> None:
    assert judged(resource_claim(config=[opaque(**parameters)])).errors == (said,)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    made = resource_claim(
        [{"name": "gpu", "exactly": exactly(capacity={"requests": {"cores": "200"}})}],
        [opaque(coreLimit=60), opaque(coreLimit=0, policy="bin-pack")],
    )

    said = "; ".join(judged(made).errors)

    assert "config[1].opaque.parameters.coreLimit" in said
    assert "config[1].opaque.parameters.policy: 'bin-pack' is not a policy" in said
    assert "requests[0].exactly.capacity.requests.cores: 200 is more than a GPU has" in said


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("ResourceClaimTemplate", "spec.spec.devices.config[0]"),
        ("DeviceClass", "spec.config[0]"),
    ],
)
def test_templates_and_classes_are_judged_alike(kind: str, path: str) -> None:
    made = (
        device_class([opaque(coreLimit=0)])
        if kind == "DeviceClass"
        else resource_claim(config=[opaque(coreLimit=0)], kind=kind)
    )

    (said,) = judged(made).errors

    assert said.startswith(f"{path}.opaque.parameters.coreLimit: ")


def test_what_is_of_another_driver_or_class_is_not_looked_at() -> None:
    other = {"opaque": {"driver": "nic.example.com", "parameters": {"coreLimit": 0}}}
    nic = exactly("nic.example.com", capacity={"requests": {"bandwidth": "9e9", "cores": "200"}})

    assert judged(resource_claim([{"name": "nic", "exactly": nic}], [other])) == Decision()
    assert judged(device_class([other])) == Decision()


@pytest.mark.parametrize(
    ("amounts", "said"),
    [
        ({"cores": "101"}, "cores: 101 is more than a GPU has, 100: for several GPUs write count"),
        ({"core": "30"}, "core: no GPU has such a capacity; did you mean cores?"),
        ({"vram": "1Gi"}, "vram: no GPU has such a capacity; there are cores and memory"),
        ({"cores": "3O"}, "cores: '3O' is not an amount"),
        ({"memory": "-1Gi"}, "memory: '-1Gi' is not an amount"),
        ({"memory": "81Gi", "cores": "30"}, "memory: 81Gi; no node has a GPU with that"),
    ],
)
@pytest.mark.parametrize("where", ["exactly", "firstAvailable[1]"])
def test_an_amount_that_no_gpu_has_is_refused(
    amounts: dict[str, str], said: str, where: str
) -> None:
    wrong = exactly(capacity={"requests": amounts})
    made = (
        {"name": "gpu", "firstAvailable": [{"name": "a", **exactly()}, {"name": "b", **wrong}]}
        if where != "exactly"
        else {"name": "gpu", "exactly": wrong}
    )

    (text,) = judged(resource_claim([made])).errors

    assert text.startswith(f"spec.devices.requests[0].{where}.capacity.requests.{said}")


@pytest.mark.parametrize("unschedulable", Unschedulable)
def test_more_gpus_than_a_node_has_are_judged_by_the_policy(unschedulable: Unschedulable) -> None:
    made = resource_claim([{"name": "gpu", "exactly": exactly(count=3)}])

    verdict = judged(made, unschedulable=unschedulable)

    said = ("spec.devices.requests[0].exactly.count: 3; the largest node has 2",)
    assert verdict.errors == (said if unschedulable is Unschedulable.DENY else ())
    assert verdict.warnings == (said if unschedulable is Unschedulable.WARN else ())


def test_where_no_node_is_known_nothing_is_too_large() -> None:
    asked = exactly(count=30, capacity={"requests": {"cores": "1", "memory": "999Gi"}})
    made = resource_claim([{"name": "gpu", "exactly": asked}])

    assert validate_claim(made["kind"], made, AdmissionPolicy()) == Decision()


@pytest.mark.parametrize(("said", "missing"), [("cores", "memory"), ("memory", "cores")])
def test_one_amount_alone_is_let_in_with_a_word_about_the_other(said: str, missing: str) -> None:
    asked = exactly(capacity={"requests": {said: "30"}})

    verdict = judged(resource_claim([{"name": "gpu", "exactly": asked}]))

    assert verdict.errors == ()
    (text,) = verdict.warnings
    assert text.endswith(f"requests.{missing} is not said and means all of the GPU's")


def test_admin_access_is_told_what_to_ask_for() -> None:
    watching = {"cores": "1", "memory": "256Mi"}

    bare = judged(resource_claim([{"name": "all", "exactly": exactly(adminAccess=True)}]))
    asked = exactly(adminAccess=True, capacity={"requests": watching})
    enough = judged(resource_claim([{"name": "all", "exactly": asked}]))

    assert "cores: 1, memory: 256Mi" in bare.warnings[0]
    assert bare.errors == ()
    assert enough == Decision()
