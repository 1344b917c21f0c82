"""What is said of pods that would not run, or not as they are meant."""

from typing import Any

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, Unschedulable
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.scheduler.webhook.validate import validate
from tests.scheduler.webhook.review_texts import container, node_kind, pod

POLICY = AdmissionPolicy(unschedulable=Unschedulable.DENY)
LIMIT = "tencent.com/vcuda-core-limit"


def noted(**annotations: Any) -> dict[str, Any]:
    """A share with annotations of ours."""
    said = {key.replace("_", "-"): text for key, text in annotations.items()}
    return pod(annotations={f"tencent.com/{key}": text for key, text in said.items()})


def asking(part: str, cores: str | None) -> dict[str, Any]:
    """A pod whose limits or requests are said in another way than the other ones."""
    made = container()
    made["resources"][part] = {**made["resources"][part], VCORE: cores} if cores else {}
    return pod(made)


def with_whole_gpu(made: dict[str, Any]) -> dict[str, Any]:
    for amounts in made["resources"].values():
        amounts["tencent.com/gpu"] = "1"
    return made


def beside_a_claim(made: dict[str, Any]) -> dict[str, Any]:
    made["resources"]["claims"] = [{"name": "nic"}]
    return made


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod(), id="a share"),
        pytest.param(pod(container(cores=100, blocks=None)), id="a whole GPU"),
        pytest.param(pod(container(cores=1, blocks=1)), id="the least share"),
        pytest.param(pod(container(cores=800, blocks=320)), id="eight GPUs"),
        pytest.param(noted(vcuda_core_limit="100"), id="a share that may burst"),
        pytest.param(pod(annotations={"team/x": "y"}), id="an annotation of others"),
        pytest.param(
            pod({"name": "main", "image": "none"}, annotations={LIMIT: "nonsense"}), id="not ours"
        ),
        pytest.param(pod(container(cores=6400)), id="where no node is known nothing is too large"),
        pytest.param(
            pod(container(), with_whole_gpu(container(None, None, name="other"))),
            id="one container by each interface",
        ),
        *(
            pytest.param(asking("requests", text), id=f"a request that is the limit: {text}")
            for text in ("30", "0.03k", "30.0", "30000m")
        ),
        *(
            pytest.param(noted(vcuda_policy=text), id=f"a policy: {text}")
            for text in ("binpack", "least-waste=0.7,topology=0.3", "numa=strict", "")
        ),
    ],
)
def test_a_pod_as_it_should_be_passes_without_a_word(made: Any) -> None:
    assert validate(made, POLICY) == Decision()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            pod(container(cores=150)),
            ["150", "write 100 or 200", "container main (spec.containers[0])"],
        ),
        (pod(container(cores=1050)), ["write 1000 or 1100"]),
        (pod(container(blocks=None)), [VMEMORY, "blocks of 256 MiB"]),
        (pod(container(blocks=0)), [VMEMORY, "blocks of 256 MiB"]),
        (pod(container(cores=None)), [f"{VMEMORY} without {VCORE}", "1 to 99"]),
        (pod(container(cores="0.5")), ["'0.5'", "not a whole number"]),
        (pod(container(cores="500m")), ["not a whole number"]),
        (pod(container(cores=-5)), ["'-5'", "at least 0"]),
        (asking("requests", "20"), [LIMIT]),
        (asking("limits", None), [f"{VCORE} is only requested"]),
        *(
            (noted(vcuda_core_limit=text), ["is not 1 to 100 percent"])
            for text in ("", "abc", "-1", "0", "1.5", "50%", "٣", "9" * 40)
        ),
        (noted(vcuda_policy="bestfit"), ["tencent.com/vcuda-policy: 'bestfit' is not a policy"]),
        (noted(vcuda_policy="binpack=strict"), ["binpack cannot be strict"]),
        (noted(vcuda_policy="binpack=lots"), ["the weight is a number"]),
        (noted(vcuda_gpu_policy="numa"), ["'numa' is not a policy for GPUs: write one of"]),
        (
            pod(with_whole_gpu(container())),
            ["container main (spec.containers[0]): tencent.com/vcuda-core and tencent.com/gpu"],
        ),
        (
            pod(
                container(cores=150, name="app"),
                initContainers=[
                    container(cores=250, name="first"),
                    container(cores=350, name="side", restartPolicy="Always"),
                ],
            ),
            ["spec.containers[0]", "spec.initContainers[0]", "spec.initContainers[1]"],
        ),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_what_is_wrong_is_refused_with_what_to_write_instead(wrong: Any, words: list[str]) -> None:
    said = "\n".join(validate(wrong, POLICY).errors)

    for word in words:
        assert word in said


def test_a_burst_limit_below_the_promise_is_refused_for_those_it_would_hold_back() -> None:
    made = pod(container(cores=30), container(cores=60, name="big"), annotations={LIMIT: "50"})

    (said,) = validate(made, POLICY).errors

    assert "container big" in said


@pytest.mark.parametrize(
    ("made", "words"),
    [
        pytest.param(
            pod(container(cores=100), annotations={LIMIT: "50"}),
            ["no effect"],
            id="a burst limit of whole GPUs",
        ),
        pytest.param(noted(vcuda_core_limit="150"), ["150 counts as 100"], id="a limit beyond all"),
        pytest.param(
            noted(vcuda_core_limits="50"), [f"did you mean {LIMIT}?"], id="a misspelt annotation"
        ),
        pytest.param(
            pod(beside_a_claim(container())),
            ["beside claims (nic)", "the node refuses"],
            id="a share beside a claim, which may be of another driver",
        ),
        *(
            pytest.param(noted(vcuda_plan=plan), ["is ignored"], id=f"a plan of {plan[:20]}")
            for plan in ("{", "[]", "null", '{"version": 2, "containers": {}}', "[" * 100_000)
        ),
    ],
)
def test_what_may_be_a_mistake_is_warned_of(made: Any, words: list[str]) -> None:
    verdict = validate(made, POLICY)

    assert verdict.errors == ()
    (warning,) = verdict.warnings
    for word in words:
        assert word in warning


def test_of_many_strange_annotations_a_few_are_named() -> None:
    many = {f"tencent.com/{'x' * 30}{number}": "" for number in range(10_000)}

    assert len(validate(pod(annotations=many), POLICY).warnings) == 5


def test_what_a_quota_says_of_a_pod_is_a_warning_and_it_is_asked_with_its_cores() -> None:
    asked: list[int] = []

    def never(cores: int) -> str:
        asked.append(cores)
        return "too much"

    init = container(cores=500, blocks=None, name="init")
    made = pod(container(cores=200, blocks=None), container(), initContainers=[init])

    assert validate(made, POLICY, (), never) == Decision((), ("too much",))
    assert asked == [500]


SIDECAR = container(restartPolicy="Always")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        pytest.param(pod(container(cores=800, blocks=160)), "", id="all GPUs"),
        pytest.param(pod(container(cores=200, blocks=320)), "", id="the large ones"),
        pytest.param(pod(container(blocks=320)), "", id="a large share"),
        pytest.param(
            pod(container(cores=800), initContainers=[container(cores=800, name="first")]),
            "",
            id="one after another",
        ),
        pytest.param(pod(*(container(name=f"c{n}") for n in range(24))), "", id="many shares"),
        pytest.param(
            pod(container(cores=1600)), "asks for 16 GPUs; the largest node has 8", id="GPUs"
        ),
        pytest.param(
            pod(container(blocks=400)),
            "the largest GPU has 320 blocks of memory (80 GiB)",
            id="memory",
        ),
        pytest.param(pod(container(blocks="8Gi")), "asks for", id="memory in bytes"),
        pytest.param(pod(container(cores=800, blocks=320)), "on 8 GPUs each", id="memory of each"),
        pytest.param(
            pod(container(cores=500), container(cores=400, name="b")),
            "together ask for 9 GPUs",
            id="GPUs together",
        ),
        pytest.param(
            pod(container(cores=800), initContainers=[SIDECAR]),
            "together ask for 9 GPUs",
            id="GPUs with a sidecar",
        ),
    ],
)
def test_what_no_node_known_could_run_is_refused_with_what_there_is(made: Any, words: str) -> None:
    nodes = (node_kind(*[40] * 8), node_kind(80, 80), node_kind())

    errors = validate(made, POLICY, nodes).errors

    assert bool(errors) == bool(words)
    assert words in "\n".join(errors)


def test_what_no_node_could_run_is_warned_of_by_default_for_an_autoscaler() -> None:
    made, nodes = pod(container(cores=1600)), (node_kind(80),)

    warned = validate(made, AdmissionPolicy(), nodes)
    ignored = validate(made, AdmissionPolicy(unschedulable=Unschedulable.IGNORE), nodes)

    assert (warned.errors, len(warned.warnings)) == ((), 1)
    assert ignored == Decision()
