"""The two lines become a claim: what the pod looks like then, and which template it names."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube.pod import pod_amount, read_pod
from gpumanager.kube.vcuda_config import VcudaConfig, read_vcuda_config
from gpumanager.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_MODEL_WANTED,
    LABEL_CLAIM_TEMPLATE,
    VCORE,
    VMEMORY,
)
from gpumanager.scheduler.claims.template import ClaimShape, read_shape
from gpumanager.scheduler.quota.rules import cores_of
from gpumanager.scheduler.scoring.pod_shape import PodShape, pod_shape_of
from gpumanager.scheduler.webhook.asks import read_asks
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.review import Decision, Review
from gpumanager.scheduler.webhook.service import Webhook
from tests.scheduler.webhook.review_texts import applied, container, node_kind, pod

POLICY = AdmissionPolicy(scheduler_name="gpu-scheduler", default_memory=4)


@dataclass
class CoresLeft:
    """A quota of 100 cores. expected: what was let in."""

    expected: list[ClaimShape] = field(default_factory=list)

    def refusals(self, _namespace: str, asked: ClaimShape) -> tuple[str, ...]:
        cores = asked.cores + sum(one.cores for one in self.expected)
        return ("exceeded quota",) if cores > 100 else ()

    def expect(self, _namespace: str, asked: ClaimShape) -> None:
        self.expected.append(asked)

    def withdraw(self, _namespace: str, asked: ClaimShape) -> None:
        self.expected.remove(asked)


def decided(
    made: Any,
    policy: AdmissionPolicy = POLICY,
    quota: CoresLeft | None = None,
    *,
    dry_run: bool = False,
) -> Decision:
    hook = Webhook(policy, lambda: {node_kind(80, 80)}, claims=True, quota=cast("Any", quota))
    review = Review("v1", "u", "Pod", "CREATE", "", "default", made, dry_run=dry_run)
    return hook.mutate_to_claims(review)


def changed(made: Any) -> Any:
    decision = decided(made)
    assert decision.errors == ()
    return applied(made, decision.patch)


def requests(template: Any) -> Any:
    return template["spec"]["spec"]["devices"]["requests"]


def template_of(after: Any) -> Any:
    return read_shape(after["metadata"]["annotations"][ANNOTATION_CLAIM]).template("default")


def test_a_share_becomes_one_request_of_a_claim() -> None:
    after = changed(pod())

    (main,) = after["spec"]["containers"]
    assert main["resources"] == {
        "limits": {},
        "requests": {},
        "claims": [{"name": "vcuda", "request": "main"}],
    }
    template = template_of(after)
    assert after["spec"]["resourceClaims"] == [
        {"name": "vcuda", "resourceClaimTemplateName": template["metadata"]["name"]}
    ]
    assert after["metadata"]["labels"][LABEL_CLAIM_TEMPLATE] == template["metadata"]["name"]
    assert requests(template) == [
        {
            "name": "main",
            "exactly": {
                "deviceClassName": "gpu.tencent.com",
                "allocationMode": "ExactCount",
                "count": 1,
                "capacity": {"requests": {"cores": "30", "memory": "2048Mi"}},
            },
        }
    ]


def test_with_tiers_a_share_asks_for_a_gpu_in_use_first() -> None:
    tiers = replace(POLICY, claim_alternatives=True)
    made = pod(annotations={ANNOTATION_MODEL_WANTED: "T4"})
    after = applied(made, decided(made, tiers).patch)

    (request,) = requests(template_of(after))
    (plain,) = requests(template_of(changed(made)))
    shared, other = request["firstAvailable"]
    in_use = {"cel": {"expression": "device.attributes['gpu.tencent.com'].freeCores < 100"}}
    models = plain["exactly"]["selectors"]
    assert other == {"name": "any", **plain["exactly"]}
    assert shared == {**other, "name": "shared", "selectors": [in_use, *models]}
    assert name_of_template(after) != name_of_template(changed(made))


def test_with_tiers_whole_gpus_are_asked_for_as_without() -> None:
    made = pod(container(200, 64))
    after = applied(made, decided(made, replace(POLICY, claim_alternatives=True)).patch)

    assert name_of_template(after) == name_of_template(changed(made))


def name_of_template(after: Any) -> Any:
    return after["metadata"]["labels"][LABEL_CLAIM_TEMPLATE]


def test_whole_gpus_are_counted_and_their_memory_is_a_condition() -> None:
    (request,) = requests(template_of(changed(pod(container(200, 64)))))

    assert request["exactly"]["count"] == 2
    assert "capacity" not in request["exactly"]
    assert request["exactly"]["selectors"] == [
        {
            "cel": {
                "expression": "device.capacity['gpu.tencent.com'].memory"
                ".compareTo(quantity('16384Mi')) >= 0"
            }
        }
    ]


def test_each_container_names_its_own_request_beside_claims_of_its_own() -> None:
    own = {"name": "nic", "resourceClaimName": "nic-1"}
    second = container(20, 4, "second")
    second["resources"]["claims"] = [{"name": "nic"}]

    after = changed(pod(container(), second, resourceClaims=[own]))

    main, second = after["spec"]["containers"]
    assert main["resources"]["claims"] == [{"name": "vcuda", "request": "main"}]
    assert second["resources"]["claims"] == [
        {"name": "nic"},
        {"name": "vcuda", "request": "second"},
    ]
    assert after["spec"]["resourceClaims"][0] == own
    assert [one["name"] for one in requests(template_of(after))] == ["main", "second"]


def test_a_container_that_a_later_webhook_adds_joins_the_claim() -> None:
    """The API server asks again then: what was converted before has no lines any more."""
    first = changed(pod(container(), container(20, 4, "removed")))
    first["spec"]["containers"][1] = container(10, 4, "side")

    after = changed(first)

    main, side = after["spec"]["containers"]
    assert main["resources"]["claims"] == [{"name": "vcuda", "request": "main"}]
    assert side["resources"]["claims"] == [{"name": "vcuda", "request": "side"}]
    assert [one["name"] for one in requests(template_of(after))] == ["main", "side"]
    (claim,) = after["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == name_of_template(after)


def test_a_pod_counts_once_though_it_is_asked_about_again() -> None:
    quota = CoresLeft()
    first = applied(made := pod(container(60)), decided(made, quota=quota).patch)
    first["spec"]["containers"].append(container(40, 4, "side"))

    assert decided(first, quota=quota).errors == ()
    assert [one.cores for one in quota.expected] == [100]


def test_what_exceeds_a_quota_is_refused_and_a_dry_run_counts_nothing() -> None:
    quota = CoresLeft()

    assert decided(pod(container(60)), quota=quota, dry_run=True).errors == ()
    assert decided(pod(container(60)), quota=quota).errors == ()
    assert decided(pod(container(60)), quota=quota).errors == ("exceeded quota",)
    assert [one.cores for one in quota.expected] == [60]


@pytest.mark.parametrize(
    "claim", [{"resourceClaimName": "mine"}, {"resourceClaimTemplateName": "vcuda-0123"}]
)
def test_a_claim_of_another_kind_is_not_replaced_by_the_pods_own(claim: Any) -> None:
    made = pod(resourceClaims=[{"name": "vcuda", **claim}])

    (error,) = decided(made).errors

    assert "give this claim another name" in error


def test_an_init_container_uses_a_later_request_that_is_enough_and_else_its_own() -> None:
    small, large = container(10, 4, "small"), container(60, 4, "large")
    sidecar = container(5, 1, "sidecar", restartPolicy="Always")

    after = changed(pod(container(), initContainers=[small, large, sidecar]))

    named = [
        one["resources"]["claims"][0]["request"]
        for one in (*after["spec"]["initContainers"], *after["spec"]["containers"])
    ]
    assert named == ["main", "large", "sidecar", "main"]
    assert [one["name"] for one in requests(template_of(after))] == ["large", "main", "sidecar"]


SIDE = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("inits", "apps", "plain", "claimed"),
    [
        ([], [(30, 8), (20, 4)], (50, 12), (50, 12)),
        ([], [(200, 64)], (200, 64), (200, 64)),
        ([(20, 4, {})], [(30, 8)], (30, 8), (30, 8)),
        ([(40, 4, SIDE)], [(30, 8)], (70, 12), (70, 12)),
        ([(40, 4, SIDE), (20, 4, {})], [(30, 8)], (70, 12), (70, 12)),
        # The claim holds what an init container alone needs until the pod ends.
        ([(50, 8, {})], [(30, 8)], (50, 8), (80, 16)),
        ([(50, 8, {}), (40, 8, {})], [(30, 8)], (50, 8), (80, 16)),
        ([(60, 8, SIDE), (50, 8, {})], [(30, 8)], (110, 16), (140, 24)),
    ],
)
def test_a_converted_pod_counts_as_a_plain_one_but_for_what_init_containers_alone_need(
    inits: list[Any], apps: list[tuple[int, int]], plain: tuple[int, int], claimed: tuple[int, int]
) -> None:
    rows = [container(c, b, f"i{n}", **more) for n, (c, b, more) in enumerate(inits)]
    made = pod(*(container(c, b, f"a{n}") for n, (c, b) in enumerate(apps)), initContainers=rows)

    asks = [(one.kind, one.request) for one in read_asks(made) if one.request]
    shape = pod_shape_of(read_pod({**made, "metadata": {**made["metadata"], "uid": "u"}}))
    claim = read_shape(changed(made)["metadata"]["annotations"][ANNOTATION_CLAIM])

    assert isinstance(shape, PodShape)
    cores = pod_amount((kind, one.cores) for kind, one in asks)
    assert (cores, pod_amount((kind, one.blocks) for kind, one in asks)) == plain
    assert cores_of(shape) == plain[0]
    assert (claim.cores, claim.blocks) == claimed


def test_annotations_become_parameters_and_wishes_become_selectors() -> None:
    said = {
        "tencent.com/vcuda-core-limit": "60",
        "tencent.com/include-gpu-model": 'A100, h"100',
        "tencent.com/exclude-gpu-uuid": "GPU-1",
        "other": "kept",
    }

    after = changed(pod(annotations=said))

    template = template_of(after)
    (config,) = template["spec"]["spec"]["devices"]["config"]
    read = read_vcuda_config(config["opaque"]["parameters"])
    assert read == VcudaConfig(60)
    assert [config] == [
        {
            "opaque": {
                "driver": "gpu.tencent.com",
                "parameters": {
                    "apiVersion": "gpu.tencent.com/v1alpha1",
                    "kind": "VcudaConfig",
                    "coreLimit": 60,
                },
            }
        }
    ]
    (request,) = requests(template)
    attributes = "device.attributes['gpu.tencent.com']"
    assert [one["cel"]["expression"] for one in request["exactly"]["selectors"]] == [
        f'["a100", "h\\"100"].exists(word, {attributes}.productName.lowerAscii().contains(word))',
        f'!({attributes}.uuid in ["GPU-1"])',
    ]
    assert after["metadata"]["annotations"]["other"] == "kept"


def test_what_could_never_run_is_refused_here_since_nobody_sees_it_later() -> None:
    decision = decided(pod(container(150, 8), annotations={"tencent.com/vcuda-policy": "x"}))

    assert decision.outcome == "refused"
    assert len(decision.errors) == 2
    assert decision.patch == ()


@pytest.mark.parametrize("made", [pod(container(None, None)), pod(container(0, 0))])
def test_a_pod_without_gpus_is_left_alone(made: Any) -> None:
    assert decided(made) == Decision()


names = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)
amounts = st.tuples(st.sampled_from([None, 0, 1, 30, 99, 100, 200]), st.sampled_from([None, 1, 8]))
kinds = st.sampled_from(["init", "sidecar", "app"])


@given(names, st.data())
def test_whatever_is_let_in_asks_by_claims_alone_and_for_the_same(
    taken: list[str], data: st.DataObject
) -> None:
    lists: dict[str, list[Any]] = {"containers": [], "initContainers": []}
    for name in taken:
        made, kind = container(*data.draw(amounts), name), data.draw(kinds)
        made |= {"restartPolicy": "Always"} if kind == "sidecar" else {}
        lists["containers" if kind == "app" else "initContainers"].append(made)
    before = pod(*lists["containers"], initContainers=lists["initContainers"])

    decision = decided(before)
    if decision.errors or not decision.patch:
        return
    after = applied(before, decision.patch)

    assert decided(after) == Decision()
    shape = read_shape(after["metadata"]["annotations"][ANNOTATION_CLAIM])
    assert shape.name == after["metadata"]["labels"][LABEL_CLAIM_TEMPLATE]
    given_by = {one.name: one for one in shape.requests}
    for kind in ("containers", "initContainers"):
        for was, now in zip(before["spec"][kind], after["spec"][kind], strict=True):
            limits = was["resources"]["limits"]
            cores = int(limits.get(VCORE, 0))
            assert (
                not {VCORE, VMEMORY} & {*now["resources"]["limits"], *now["resources"]["requests"]}
                or not cores
            )
            if cores:
                (named,) = now["resources"]["claims"]
                request = given_by[named["request"]]
                assert request.cores >= cores
                assert request.blocks >= int(limits.get(VMEMORY, 0))
                assert request.name == was["name"] or "restartPolicy" not in was
    assert len(given_by) == len(shape.requests)
    assert {one.name for one in shape.requests} <= {*taken, "main"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Expecting value"),
        ("{}", "not what the webhook writes"),
        ('{"requests":[],"parameters":{},"wishes":{}}', "0 requests"),
        ('{"requests":[["A",1,1]],"parameters":{},"wishes":{}}', "names no request"),
        ('{"requests":[["a",0,1]],"parameters":{},"wishes":{}}', "is no amount"),
        ('{"requests":[["a",true,1]],"parameters":{},"wishes":{}}', "is no amount"),
        ('{"requests":[["a",1]],"parameters":{},"wishes":{}}', "not what the webhook writes"),
        ('{"requests":[["a",1,1]],"parameters":{"coreLimit":"x"},"wishes":{}}', "coreLimit"),
        ("[" * 5000, "not what the webhook writes"),
        ("x" * 20000, "at most 16384"),
    ],
)
def test_an_annotation_that_somebody_else_wrote_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_shape(text)
