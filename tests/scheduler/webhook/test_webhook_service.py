"""The webhook as the API server meets it: over HTTP, with whatever is sent to it."""

import json
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

from gpumanager.gpu.inventory import inventory
from gpumanager.scheduler.metrics import WebhookMetrics
from gpumanager.scheduler.quota.limits import read_quotas
from gpumanager.scheduler.webhook.nodes import KnownNodes, NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, Unschedulable
from gpumanager.scheduler.webhook.service import (
    MUTATE,
    VALIDATE,
    VALIDATE_CLAIMS,
    Webhook,
)
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import client_of
from tests.scheduler.claims.claim_texts import device_class, opaque, resource_claim
from tests.scheduler.http.served import Served, serving
from tests.scheduler.webhook.review_texts import (
    applied,
    container,
    node_kind,
    node_topology,
    pod,
    response,
    review,
)

pytest_plugins = ["tests.scheduler.extender_fixtures"]

PROBES = ("/healthz", "/readyz", "/version")
QUOTAS = read_quotas('{"default": {"quota": {"A100": 2, "T4": 1}}}')
POLICY = AdmissionPolicy("gpu-scheduler", default_memory=4, unschedulable=Unschedulable.DENY)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    hook = Webhook(
        POLICY,
        lambda: {node_kind(80, 80)},
        lambda: QUOTAS,
        WebhookMetrics(lambda: {"node_kinds": 1.0}),
        "2.0",
    )
    async with serving(hook.routes()) as one:
        yield one


async def asked(served: Served, path: str, made: Any) -> Any:
    status, body = await served.post(path, review(made))
    assert status == 200
    return response(body)


async def test_a_new_pod_is_completed_and_then_passes(served: Served) -> None:
    made = pod(container(blocks=None), nodeName="n1")

    changes = await asked(served, MUTATE, made)
    after = applied(made, changes["patch"])
    verdict = await asked(served, VALIDATE, after)

    assert after["spec"]["schedulerName"] == "gpu-scheduler"
    assert len(changes["warnings"]) == 2
    assert verdict == {"uid": "0d3a2c6e", "allowed": True}


async def test_a_pod_that_exceeds_its_quota_by_itself_is_warned_of_and_let_in(
    served: Served,
) -> None:
    made = pod(container(cores=200), container(cores=100, name="two"))

    verdict = await asked(served, VALIDATE, made)
    (warned,) = verdict["warnings"]

    assert "the GPU quota of namespace default is A100=2, T4=1, and this pod asks for 3" in warned
    assert "quota" not in str(verdict.get("status"))
    verdict = await asked(served, VALIDATE, pod(container(cores=200)))
    assert "warnings" not in verdict


def claim_review(made: Any, **request: Any) -> dict[str, Any]:
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": made["kind"]}
    return review(made, kind=kind, **request)


async def test_a_claim_is_judged_when_it_is_created(served: Served) -> None:
    made = resource_claim(config=[opaque(coreLimits=60)])

    verdict = response((await served.post(VALIDATE_CLAIMS, claim_review(made)))[1])

    assert verdict["status"]["message"] == (
        "spec.devices.config[0].opaque.parameters.coreLimits: unknown field; "
        "did you mean coreLimit?"
    )


async def test_a_class_is_judged_again_only_when_its_spec_changes(served: Served) -> None:
    """What was there before the webhook can still be labelled, and loses its finalizers."""
    made = device_class([opaque(coreLimit=0)])
    labelled = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}

    answers = [
        response((await served.post(VALIDATE_CLAIMS, body))[1])["allowed"]
        for body in (
            claim_review(labelled, operation="UPDATE", oldObject=made),
            claim_review(made, operation="UPDATE", oldObject=device_class()),
            claim_review(made, operation="UPDATE", oldObject=made, subResource="status"),
            claim_review(made, operation="DELETE"),
        )
    ]

    assert answers == [True, False, True, True]


async def test_each_path_looks_at_its_own_kinds_alone(served: Served) -> None:
    claim, wrong = resource_claim(config=[opaque(coreLimit=0)]), pod(container(cores=150))

    answers = [
        response((await served.post(path, body))[1])
        for path, body in (
            (VALIDATE, claim_review(claim)),
            (MUTATE, claim_review(claim)),
            (VALIDATE_CLAIMS, review(wrong)),
        )
    ]

    assert answers == [{"uid": "0d3a2c6e", "allowed": True}] * 3


async def test_a_claim_that_cannot_be_looked_at_passes_with_a_word(served: Served) -> None:
    broken = {**resource_claim(), "spec": ["x"]}

    answer = response((await served.post(VALIDATE_CLAIMS, claim_review(broken)))[1])

    assert answer["allowed"] is True
    assert "could not look at this claim: it is not understood: " in answer["warnings"][0]


async def test_metrics_tell_what_became_of_reviews(served: Served) -> None:
    for made in (pod(container(blocks=None)), pod(), "no pod"):
        await asked(served, MUTATE, made)
    await asked(served, VALIDATE, pod(container(cores=150)))
    await served.post(VALIDATE, b"{")

    text = (await served.get("/metrics"))[1].decode()

    for endpoint, outcome, count in [
        ("mutate", "changed", 2.0),
        ("mutate", "failed", 1.0),
        ("mutate", "malformed", 0.0),
        ("validate", "refused", 1.0),
        ("validate", "malformed", 1.0),
    ]:
        series = f'reviews_total{{endpoint="{endpoint}",outcome="{outcome}"}} {count}'
        assert f"gpumanager_webhook_{series}" in text
    assert 'gpumanager_webhook_request_duration_seconds_count{endpoint="mutate"} 3.0' in text
    assert "gpumanager_webhook_node_kinds 1.0" in text


BROKEN: tuple[Any, ...] = (
    None,
    [],
    "pod",
    {},
    {"spec": None},
    {"spec": {"containers": "none"}},
    {"spec": {"containers": [None, 5]}},
    pod({"resources": {"limits": 5}}),
    pod(container(cores=[]), container(blocks={})),
    {**pod(), "metadata": []},
    pod(annotations={"tencent.com/vcuda-core-limit": {}, "tencent.com/vcuda-plan": 5}),
    pod(tolerations="all", nodeName={}),
    pod(nodeName="n", affinity={"nodeAffinity": 5}),
    pod(tolerations=[{"key": [], "effect": {}, "operator": "Exists"}]),
)


async def test_a_pod_of_wrong_shape_gets_an_answer_and_never_a_fault_of_ours(
    served: Served, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for path, broken in product((MUTATE, VALIDATE), BROKEN):
        with subtests.test(f"{path}: {json.dumps(broken)[:60]}"):
            answer = await asked(served, path, broken)

            assert answer["uid"] == "0d3a2c6e"
            assert [one for one in caplog.records if one.exc_info] == []


async def test_only_json_is_taken(served: Served) -> None:
    assert (await served.post(MUTATE, review(pod()), "text/plain"))[0] == 415
    assert (await served.post(MUTATE, review(pod()), "application/json; charset=utf-8"))[0] == 200


async def test_who_leaves_is_alive_and_ready_no_longer() -> None:
    hook = Webhook(POLICY)
    async with serving(hook.routes()) as one:
        assert [(await one.get(path))[0] for path in PROBES] == [200, 200, 200]
        hook.leaving = True
        assert [(await one.get(path))[0] for path in PROBES] == [200, 503, 200]


async def add(api: SimulatedApiServer, name: str, annotations: dict[str, str] | None) -> None:
    await api.create("nodes", {"metadata": {"name": name, "annotations": annotations}})


async def test_nodes_are_known_by_what_their_agents_say_of_them(api: SimulatedApiServer) -> None:
    await add(api, "n1", inventory(node_topology(80, 40)))
    await add(api, "n2", inventory(node_topology(40, 80)))
    await add(api, "n3", inventory(node_topology(16)))
    await add(api, "cpu", None)
    await add(api, "odd", {"tencent.com/gpu-inventory": '{"version": 9}'})
    nodes = KnownNodes(client_of(api))

    await nodes.refresh()

    assert nodes.kinds == {NodeKind((320, 160)), NodeKind((64,))}


async def test_all_pages_of_a_large_cluster_are_read(api: SimulatedApiServer) -> None:
    for number in range(1001):
        await add(api, f"n{number}", inventory(node_topology(80)) if number == 1000 else None)
    nodes = KnownNodes(client_of(api))

    await nodes.refresh()

    assert nodes.kinds == {NodeKind((320,))}


async def test_while_the_api_server_is_away_what_was_known_stays_and_that_is_said_once(
    api: SimulatedApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    await add(api, "n1", inventory(node_topology(80)))
    nodes = KnownNodes(client_of(api))
    await nodes.refresh()
    await api.stop()

    for _ in range(3):
        await nodes.refresh()

    assert nodes.kinds == {NodeKind((320,))}
    assert [one.levelname for one in caplog.records if "not reading" in one.message] == ["WARNING"]
