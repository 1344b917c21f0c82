"""How pods that ask for GPUs are changed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube.quantity import whole_number
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.webhook.mutate import REQUIRED, mutate
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, DefaultMemory
from gpumanager.scheduler.webhook.review import differences
from tests.scheduler.webhook.review_texts import applied, container, node_kind, pod

POLICY = AdmissionPolicy(scheduler_name="gpu-scheduler")
TOLERATIONS = [
    {"key": VCORE, "operator": "Exists", "effect": "NoSchedule"},
    {"key": VMEMORY, "operator": "Exists", "effect": "NoSchedule"},
]


def changed(made: Any, policy: AdmissionPolicy = POLICY, *nodes: Any) -> Any:
    return applied(made, differences(made, mutate(made, policy, nodes)[0]))


def test_a_pod_that_asks_for_gpus_gets_our_scheduler_and_its_tolerations() -> None:
    after = changed(pod())

    assert after["spec"]["schedulerName"] == "gpu-scheduler"
    assert after["spec"]["tolerations"] == TOLERATIONS


def test_only_the_taints_of_resources_that_are_asked_for_are_tolerated() -> None:
    after = changed(pod(container(cores=100, blocks=None)))

    assert after["spec"]["tolerations"] == TOLERATIONS[:1]


@pytest.mark.parametrize(
    "made",
    [
        pod({"name": "main", "image": "none"}),
        pod(container(cores=0, blocks=0)),
        pod(container(), annotations={"kubernetes.io/config.mirror": "5f2"}),
        {"metadata": {}, "spec": {"containers": []}},
        {"metadata": None, "spec": None},
    ],
    ids=["asks for none", "asks for nothing", "mirror of a static pod", "no containers", "nulls"],
)
def test_a_pod_that_is_not_for_us_is_left_alone(made: Any) -> None:
    assert mutate(made, POLICY) == (made, ())


def test_whichever_container_asks_for_gpus_makes_it_a_pod_of_ours() -> None:
    plain = {"name": "other", "image": "none"}
    initial, sidecar = container(name="i"), container(name="s", restartPolicy="Always")

    for made in (
        pod(plain, container()),
        pod(plain, initContainers=[plain, initial]),
        pod(plain, initContainers=[sidecar]),
    ):
        assert changed(made)["spec"]["schedulerName"] == "gpu-scheduler"


def test_a_pod_with_a_scheduler_of_its_own_keeps_it() -> None:
    assert changed(pod(schedulerName="volcano"))["spec"]["schedulerName"] == "volcano"


def test_without_a_name_for_it_the_scheduler_is_left_as_it_is() -> None:
    after = changed(pod(), AdmissionPolicy())

    assert after["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    "there",
    [
        [{"operator": "Exists"}],
        [{"key": VCORE, "operator": "Exists"}, {"key": VMEMORY, "operator": "Exists"}],
    ],
)
def test_what_is_tolerated_already_is_not_added_again(there: Any) -> None:
    assert changed(pod(tolerations=there))["spec"]["tolerations"] == there


@pytest.mark.parametrize(
    "there",
    [
        {"key": VCORE, "operator": "Equal", "value": "x", "effect": "NoSchedule"},
        {"key": VCORE, "operator": "Exists", "effect": "NoExecute"},
        {"key": "other", "operator": "Exists"},
    ],
)
def test_a_toleration_of_something_else_stays_beside_ours(there: Any) -> None:
    assert changed(pod(tolerations=[there]))["spec"]["tolerations"] == [there, *TOLERATIONS]


def test_what_a_scheduler_wrote_into_the_pod_this_one_was_copied_from_is_forgotten() -> None:
    ours = {
        "tencent.com/predicate-node": "n1",
        "tencent.com/predicate-time": "1",
        "tencent.com/predicate-gpu-idx-0": "3",
        "tencent.com/predicate-gpu-idx-11": "4",
        "tencent.com/gpu-assigned": "true",
        "tencent.com/vcuda-plan": "{}",
    }
    kept = {"tencent.com/vcuda-core-limit": "50", "team/a~b": "x"}

    assert changed(pod(annotations=ours | kept))["metadata"]["annotations"] == kept


def test_a_preset_node_becomes_an_affinity_and_the_user_is_told() -> None:
    made = pod(nodeName="n1")

    after, notes = mutate(made, POLICY)
    after = after["spec"]

    assert "nodeName" not in after
    assert after["affinity"]["nodeAffinity"][REQUIRED] == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        ]
    }
    assert "n1" in notes[0]


def test_a_preset_node_is_added_to_every_alternative_there_is() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [zone]}, {"matchFields": [zone]}, {}]
    near = {REQUIRED: {"nodeSelectorTerms": terms}, "preferred": ["kept"]}
    made = pod(nodeName="n1", affinity={"nodeAffinity": near, "podAffinity": "kept"})

    affinity = changed(made)["spec"]["affinity"]

    pin = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert affinity["podAffinity"] == "kept"
    assert affinity["nodeAffinity"]["preferred"] == ["kept"]
    assert affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [zone], "matchFields": [pin]},
        {"matchFields": [zone, pin]},
        {},
    ]


def test_a_preset_node_is_kept_where_the_policy_says_so() -> None:
    after = changed(pod(nodeName="n1"), AdmissionPolicy(pin=False))

    assert after["spec"]["nodeName"] == "n1"


def test_a_share_without_memory_gets_what_the_policy_gives() -> None:
    made = pod(container(blocks=None), container(blocks=8, name="other"))

    after, notes = mutate(made, AdmissionPolicy(default_memory=4))
    first, second = after["spec"]["containers"]

    assert after["spec"]["tolerations"] == TOLERATIONS
    for part in ("limits", "requests"):
        assert first["resources"][part] == {VCORE: "30", VMEMORY: "4"}
        assert second["resources"][part] == {VCORE: "30", VMEMORY: "8"}
    assert "1 GiB" in notes[0]


def test_a_pod_that_gets_memory_tolerates_the_taint_of_that_too() -> None:
    after = changed(pod(container(blocks=None)), AdmissionPolicy(default_memory=4))

    assert after["spec"]["tolerations"] == TOLERATIONS


def test_a_share_without_memory_gets_as_large_a_part_of_the_smallest_gpu() -> None:
    policy = AdmissionPolicy(default_memory=DefaultMemory.SHARE)

    after = changed(pod(container(cores=30, blocks=None)), policy, node_kind(80, 80), node_kind(16))

    assert after["spec"]["containers"][0]["resources"]["limits"][VMEMORY] == "19"


def test_where_no_gpu_is_known_a_part_of_it_is_not_guessed() -> None:
    policy = AdmissionPolicy(default_memory=DefaultMemory.SHARE)

    after = changed(pod(container(blocks=None)), policy)

    assert VMEMORY not in after["spec"]["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    "made", [container(cores=100, blocks=None), container(cores=200, blocks=0)]
)
def test_a_whole_gpu_needs_no_memory_and_gets_none(made: Any) -> None:
    after = changed(pod(made), AdmissionPolicy(default_memory=4))

    assert after["spec"]["containers"][0]["resources"] == made["resources"]


words = st.sampled_from(["n1", "", "volcano", "default-scheduler"])
cores = st.sampled_from([30, 100, 1, 99, 150, None, 0, "x", "500m", "1k"])
blocks = st.sampled_from([None, 8, 0, "x"])
containers = st.builds(container, cores=cores, blocks=blocks)
tolerations = st.lists(
    st.fixed_dictionaries(
        {}, optional={"key": st.sampled_from([VCORE, "x"]), "operator": st.just("Exists")}
    ),
    max_size=3,
)
keys = st.sampled_from(["tencent.com/predicate-node", "tencent.com/gpu-assigned", "other/~key"])
pods = st.builds(
    lambda rows, inits, notes, spec: pod(
        *rows,
        annotations=notes,
        **{k: v for k, v in spec.items() if v is not None},
        initContainers=inits,
    ),
    st.lists(containers, min_size=1, max_size=3),
    st.lists(containers, max_size=2),
    st.dictionaries(keys, words, max_size=3),
    st.fixed_dictionaries(
        {"nodeName": words, "schedulerName": words, "tolerations": st.none() | tolerations}
    ),
)
policies = st.builds(
    AdmissionPolicy,
    scheduler_name=st.sampled_from(["", "ours"]),
    default_memory=st.sampled_from([DefaultMemory.REFUSE, DefaultMemory.SHARE, 4]),
    pin=st.booleans(),
)


@given(pods, policies)
def test_a_patch_fits_its_pod_and_what_was_changed_once_is_as_it_should_be(
    made: Any, policy: AdmissionPolicy
) -> None:
    nodes = (node_kind(16, 16),)

    after = changed(made, policy, *nodes)

    assert mutate(after, policy, nodes)[0] == after


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("30", 30), (30, 30), ("1k", 1000), ("2Ki", 2048), ("3e2", 300), ("3E2", 300),
        ("1.5k", 1500), ("100.0", 100), ("1000m", 1), ("-5", -5), ("0", 0), ("+7", 7),
        ("500m", None), ("0.5", None), ("", None), ("x", None), ("1e", None), (True, None),
        ([30], None), ({}, None), ("9" * 21, None), ("1e999999999", None), (" 30 ", 30),
        ("٣", None), ("1n", None), ("5000000000n", 5),
    ],
)  # fmt: skip
def test_amounts_are_read_as_kubernetes_reads_them(text: object, number: int | None) -> None:
    assert whole_number(text) == number
