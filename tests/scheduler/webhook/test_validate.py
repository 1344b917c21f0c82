"""What is said of pods that would not run, or not as they are meant."""

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, Unschedulable
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.scheduler.webhook.validate import validate
from tests.scheduler.webhook.review_texts import container, node_kind, pod

POLICY = AdmissionPolicy(unschedulable=Unschedulable.DENY)
LIMIT = "tencent.com/vcuda-core-limit"


@pytest.mark.parametrize(
    "made",
    [
        pod(),
        pod(container(cores=100, blocks=None)),
        pod(container(cores=1, blocks=1)),
        pod(container(cores=800, blocks=320)),
        pod(container(cores=99, blocks=1), annotations={LIMIT: "100"}),
        pod(annotations={"tencent.com/vcuda-policy": "binpack", "team/x": "y"}),
        pod({"name": "main", "image": "none"}, annotations={LIMIT: "nonsense"}),
    ],
    ids=["share", "whole", "least", "eight", "burst", "policy", "not ours"],
)
def test_a_pod_as_it_should_be_passes_without_a_word(made: dict[str, object]) -> None:
    assert validate(made, POLICY) == Decision()


def errors(made: object, *nodes: object) -> str:
    return "\n".join(validate(made, POLICY, nodes).errors)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (container(cores=150), ["150", "write 100 or 200", "container main (spec.containers[0])"]),
        (container(cores=1050), ["write 1000 or 1100"]),
        (container(cores=30, blocks=None), [VMEMORY, "blocks of 256 MiB"]),
        (container(cores=30, blocks=0), [VMEMORY, "blocks of 256 MiB"]),
        (container(cores=None, blocks=8), [f"{VMEMORY} without {VCORE}", "1 to 99"]),
        (container(cores="0.5"), ["'0.5'", "not a whole number"]),
        (container(cores="500m"), ["not a whole number"]),
        (container(cores=-5), ["'-5'", "at least 0"]),
        (container(blocks="8Gi"), ["asks for"]),
    ],
    ids=lambda one: "" if isinstance(one, list) else str(one["resources"]["limits"]),
)
def test_a_wrong_amount_is_refused_with_what_to_write_instead(
    wrong: dict[str, object], words: list[str]
) -> None:
    said = errors(pod(wrong), node_kind(80))

    for word in words:
        assert word in said


def test_a_request_that_is_not_the_limit_is_refused_with_the_way_to_burst() -> None:
    made = pod()
    made["spec"]["containers"][0]["resources"]["requests"][VCORE] = "20"

    assert LIMIT in errors(made)


@pytest.mark.parametrize("request_text", ["30", "0.03k", "30.0", "30000m"])
def test_a_request_that_is_the_limit_in_other_words_passes(request_text: str) -> None:
    made = pod()
    made["spec"]["containers"][0]["resources"]["requests"][VCORE] = request_text

    assert errors(made) == ""


def test_a_request_without_a_limit_is_told_where_it_belongs() -> None:
    made = pod()
    made["spec"]["containers"][0]["resources"]["limits"] = {}

    assert f"{VCORE} is only requested" in errors(made)


def test_all_that_is_wrong_is_said_at_once_of_every_kind_of_container() -> None:
    made = pod(
        container(cores=150, name="app"),
        initContainers=[
            container(cores=250, name="first"),
            container(cores=350, name="side", restartPolicy="Always"),
        ],
    )

    said = errors(made)

    for place in ("spec.containers[0]", "spec.initContainers[0]", "spec.initContainers[1]"):
        assert place in said


@pytest.mark.parametrize("text", ["", "abc", "-1", "0", "1.5", "50%", "٣", "9" * 40])
def test_a_burst_limit_that_is_no_percentage_is_refused(text: str) -> None:
    assert "is not 1 to 100 percent" in errors(pod(annotations={LIMIT: text}))


def test_a_burst_limit_below_the_promise_is_refused_for_those_it_would_hold_back() -> None:
    made = pod(container(cores=30), container(cores=60, name="big"), annotations={LIMIT: "50"})

    said = errors(made)

    assert "container big" in said
    assert "container main" not in said


def test_a_burst_limit_has_no_say_over_whole_gpus() -> None:
    verdict = validate(pod(container(cores=100), annotations={LIMIT: "50"}), POLICY)

    assert verdict.errors == ()
    assert "no effect" in verdict.warnings[0]


def test_a_burst_limit_beyond_a_gpu_is_warned_of() -> None:
    verdict = validate(pod(annotations={LIMIT: "150"}), POLICY)

    assert verdict == Decision((), (f"annotation {LIMIT}: 150 counts as 100",))


@pytest.mark.parametrize(
    ("annotation", "text", "words"),
    [
        (
            "vcuda-policy",
            "bestfit",
            "annotation tencent.com/vcuda-policy: 'bestfit' is not a policy",
        ),
        ("vcuda-policy", "binpack=strict", "binpack cannot be strict"),
        ("vcuda-policy", "binpack=lots", "the weight is a number"),
        ("vcuda-gpu-policy", "numa", "'numa' is not a policy for GPUs: write one of"),
    ],
)
def test_a_policy_that_the_scheduler_would_not_read_is_refused_in_its_words(
    annotation: str, text: str, words: str
) -> None:
    assert words in errors(pod(annotations={f"tencent.com/{annotation}": text}))


@pytest.mark.parametrize("text", ["binpack", "least-waste=0.7,topology=0.3", "numa=strict", ""])
def test_a_policy_that_the_scheduler_reads_passes_without_a_word(text: str) -> None:
    assert validate(pod(annotations={"tencent.com/vcuda-policy": text}), POLICY) == Decision()


def test_what_a_quota_says_of_a_pod_is_a_warning_and_it_is_asked_with_its_cores() -> None:
    asked: list[int] = []

    def never(cores: int) -> str:
        asked.append(cores)
        return "too much"

    init = container(cores=500, blocks=None, name="init")
    made = pod(container(cores=200, blocks=None), container(), initContainers=[init])

    assert validate(made, POLICY, (), never) == Decision((), ("too much",))
    assert asked == [500]


def test_a_misspelt_annotation_is_warned_of_with_what_may_be_meant() -> None:
    verdict = validate(pod(annotations={"tencent.com/vcuda-core-limits": "50"}), POLICY)

    assert verdict.errors == ()
    assert f"did you mean {LIMIT}?" in verdict.warnings[0]


def test_of_many_strange_annotations_a_few_are_named() -> None:
    many = {f"tencent.com/{'x' * 30}{number}": "" for number in range(10_000)}

    assert len(validate(pod(annotations=many), POLICY).warnings) == 5


@pytest.mark.parametrize("plan", ["{", "[]", "null", '{"version": 2}', "[" * 100_000])
def test_a_plan_that_cannot_be_followed_is_warned_of(plan: str) -> None:
    verdict = validate(pod(annotations={"tencent.com/vcuda-plan": plan}), POLICY)

    assert verdict.errors == ()
    assert "is ignored" in verdict.warnings[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (pod(container(cores=1600)), "asks for 16 GPUs; the largest node has 8"),
        (pod(container(blocks=400)), "the largest GPU has 320 blocks of memory (80 GiB)"),
        (pod(container(cores=800, blocks=320)), "on 8 GPUs each"),
        (
            pod(container(cores=500), container(cores=400, name="b")),
            "together ask for 9 GPUs",
        ),
        (
            pod(container(cores=800), initContainers=[container(restartPolicy="Always")]),
            "together ask for 9 GPUs",
        ),
    ],
    ids=["GPUs", "memory", "memory of each", "together", "with a sidecar"],
)
def test_what_no_node_known_could_run_is_refused_with_what_there_is(
    wrong: object, words: str
) -> None:
    nodes = (node_kind(*[40] * 8), node_kind(80, 80), node_kind())

    assert words in errors(wrong, *nodes)


@pytest.mark.parametrize(
    "fits",
    [
        pod(container(cores=800, blocks=160)),
        pod(container(cores=200, blocks=320)),
        pod(container(blocks=320)),
        pod(container(cores=800), initContainers=[container(cores=800, name="first")]),
        pod(*(container(name=f"c{n}") for n in range(24))),
    ],
    ids=["all", "large ones", "large share", "one after another", "many shares"],
)
def test_what_some_node_could_run_were_it_empty_passes(fits: object) -> None:
    assert errors(fits, node_kind(*[40] * 8), node_kind(80, 80)) == ""


def test_where_no_node_is_known_nothing_is_too_large() -> None:
    assert errors(pod(container(cores=6400))) == ""


def test_what_no_node_could_run_is_warned_of_by_default_for_an_autoscaler() -> None:
    made, nodes = pod(container(cores=1600)), (node_kind(80),)

    warned = validate(made, AdmissionPolicy(), nodes)
    ignored = validate(made, AdmissionPolicy(unschedulable=Unschedulable.IGNORE), nodes)

    assert (warned.errors, len(warned.warnings)) == ((), 1)
    assert ignored == Decision()


def with_whole_gpu(made: dict[str, object]) -> dict[str, object]:
    resources: dict[str, dict[str, str]] = made["resources"]  # type: ignore[assignment]
    for amounts in resources.values():
        amounts["tencent.com/gpu"] = "1"
    return made


def test_a_container_that_asks_by_both_interfaces_is_refused() -> None:
    said = errors(pod(with_whole_gpu(container())))

    assert "container main (spec.containers[0]): tencent.com/vcuda-core and tencent.com/gpu" in said
    assert not errors(pod(container(), with_whole_gpu(container(None, None, name="other"))))


def test_a_share_beside_a_claim_is_warned_of_for_the_claim_may_be_of_another_driver() -> None:
    made = container()
    made["resources"]["claims"] = [{"name": "nic"}]

    verdict = validate(pod(made), POLICY)

    assert verdict.errors == ()
    (warning,) = verdict.warnings
    assert "beside claims (nic)" in warning
    assert "the node refuses" in warning
