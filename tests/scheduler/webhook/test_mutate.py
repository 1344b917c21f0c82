"""How pods that ask for GPUs are changed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


PLAIN = {"name": "other", "image": "none"}
SIDECAR = container(name="s", restartPolicy="Always")


@pytest.mark.parametrize(
    ("made", "ours", "scheduler"),
    [
        pytest.param(pod(), "gpu-scheduler", "gpu-scheduler", id="a share"),
        pytest.param(pod(PLAIN, container()), "gpu-scheduler", "gpu-scheduler", id="any container"),
        pytest.param(
            pod(PLAIN, initContainers=[PLAIN, container(name="i")]),
            "gpu-scheduler",
            "gpu-scheduler",
            id="an init container",
        ),
        pytest.param(
            pod(PLAIN, initContainers=[SIDECAR]), "gpu-scheduler", "gpu-scheduler", id="a sidecar"
        ),
        pytest.param(pod(schedulerName="volcano"), "gpu-scheduler", "volcano", id="its own one"),
        pytest.param(pod(), "", "default-scheduler", id="ours has no name"),
    ],
)
def test_a_pod_that_asks_for_gpus_gets_our_scheduler(made: Any, ours: str, scheduler: str) -> None:
    after = changed(made, AdmissionPolicy(scheduler_name=ours))

    assert after["spec"]["schedulerName"] == scheduler


ALL = {"operator": "Exists"}
BOTH = [{"key": VCORE, **ALL}, {"key": VMEMORY, **ALL}]
EQUAL = {"key": VCORE, "operator": "Equal", "value": "x", "effect": "NoSchedule"}
EVICTED = {"key": VCORE, "operator": "Exists", "effect": "NoExecute"}
OTHER = {"key": "other", "operator": "Exists"}
WHOLE = container(cores=100, blocks=None)


@pytest.mark.parametrize(
    ("made", "tolerations"),
    [
        pytest.param(pod(), TOLERATIONS, id="those of what is asked for"),
        pytest.param(pod(WHOLE), TOLERATIONS[:1], id="and of nothing else"),
        pytest.param(pod(tolerations=[ALL]), [ALL], id="who tolerates everything needs none"),
        pytest.param(pod(tolerations=BOTH), BOTH, id="nor who has both"),
        *(
            pytest.param(pod(tolerations=[one]), [one, *TOLERATIONS], id="others stay beside ours")
            for one in (EQUAL, EVICTED, OTHER)
        ),
    ],
)
def test_the_taints_of_resources_are_tolerated(made: Any, tolerations: Any) -> None:
    assert changed(made)["spec"]["tolerations"] == tolerations


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
