"""Pods from YAML: what is read, and what is refused with file, line and cause."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.errors import InputError
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.manifest.pods import Pod, parse_pods, read_manifest

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: trainer
  namespace: team-a
  annotations: {tencent.com/vcuda-core-limit: "80"}
spec:
  nodeName: ignored
  restartPolicy: Never
  initContainers:
    - name: fetch
      command: [sh, -c, "true"]
    - name: log
      restartPolicy: Always
      command: [sleep, "60"]
  containers:
    - name: main
      command: [python3, train.py]
      args: [--epochs, "3"]
      workingDir: /srv
      env:
        - {name: MODE, value: fast}
        - {name: EMPTY}
      resources:
        limits: {tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: "8", cpu: 500m}
        requests: {tencent.com/vcuda-core: "30"}
"""


def only(text: str) -> Pod:
    (pod,) = parse_pods(text, "pod.yaml")
    return pod


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_pods(text, "pod.yaml")
    assert caught.value.exit_status == 2
    return str(caught.value)


def with_container(lines: str) -> str:
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: a}}
spec:
  containers:
    - name: main
      command: [x]
{lines}"""


def test_everything_a_node_needs_of_a_pod_is_read() -> None:
    pod = only(POD)

    assert pod.full_name == "team-a/trainer"
    assert pod.annotations == {"tencent.com/vcuda-core-limit": "80"}
    main = pod.containers[-1]
    assert main.command == ("python3", "train.py", "--epochs", "3")
    assert main.directory == "/srv"
    assert main.environment == (("MODE", "fast"), ("EMPTY", ""))
    assert (main.cores, main.blocks) == (30, 8)


def test_containers_come_in_the_order_of_admission() -> None:
    kinds = [(one.name, one.kind) for one in only(POD).containers]

    assert kinds == [
        ("fetch", ContainerKind.INIT),
        ("log", ContainerKind.SIDECAR),
        ("main", ContainerKind.APP),
    ]


def test_a_file_may_hold_several_documents_and_lists() -> None:
    item = "{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {containers: [CONTAINER]}}"
    item = item.replace("CONTAINER", "{name: m, command: [x]}")
    listed = f"apiVersion: v1\nkind: List\nitems: [{item.replace('NAME', 'b')}]"
    text = f"---\n{item.replace('NAME', 'a')}\n---\n# nothing\n---\n{listed}\n"

    assert [pod.name for pod in parse_pods(text, "f")] == ["a", "b"]


def test_two_pods_of_one_name_get_different_uids() -> None:
    assert only(POD).uid != only(POD).uid


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pod.yaml: no pod in it"),
        ("---\n---\n", "pod.yaml: no pod in it"),
        ("a: [", "pod.yaml:1: not YAML"),
        ("- a", "pod.yaml:1: expected a mapping, found a list"),
        ("kind: Pod", "pod.yaml:1: expected apiVersion v1, kind Pod, found no apiVersion, Pod"),
        (
            "apiVersion: v1\nkind: Deployment",
            "pod.yaml:1: expected apiVersion apps/v1, kind Deployment, found v1, Deployment",
        ),
        (POD.replace("name: trainer", "name: Trainer_1"), "pod.yaml:4: metadata.name: 'Trainer_1'"),
        (POD.replace("  name: trainer\n", ""), "metadata: name is missing"),
        (POD.replace("namespace: team-a", "namespace: 5"), "pod.yaml:5: metadata.namespace"),
        (POD.replace("name: log", "name: main"), "a second container main"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}", "pod a has no containers"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}",
            "pod.yaml:4: spec: pod a has no containers",
        ),
        (POD + "metadata: {name: b}\n", "metadata: given twice"),
        (
            POD.replace("      command: [python3, train.py]\n", ""),
            "a simulated node has no images, so",
        ),
        (
            POD.replace("tencent.com/vcuda-core: 30", "nvidia.com/gpu: 1"),
            "is tencent.com/vcuda-core: 100",
        ),
        (POD.replace("[python3, train.py]", "[]"), "spec.containers[0].command: names no program"),
        (POD.replace("[python3, train.py]", "python3 train.py"), "expected a list, found a string"),
        (
            POD.replace("nodeName", "terminationGracePeriodSeconds"),
            "expected an integer, found a s",
        ),
        (POD.replace('"3"', "3"), "expected a string, found an integer 3: put it in quotes"),
        (POD.replace("value: fast", "value: true"), "expected a string, found a boolean true"),
        (POD.replace("value: fast", "valueFrom: {}"), "valueFrom: a simulated node has no config"),
        (POD.replace("name: MODE", "name: MO=DE"), "'MO=DE' is not a name of a variable"),
        (POD.replace("workingDir: /srv", "workingDir: srv"), "'srv' is not an absolute path"),
        (POD.replace("restartPolicy: Always", "restartPolicy: Never"), "expected Always"),
        (POD.replace("core: 30,", "core: 30.5,"), "'30.5' is not a whole number"),
        (POD.replace("core: 30,", "core: 500m,"), "'500m' is not a whole number"),
        (POD.replace("core: 30,", "core: -1,"), "'-1' is not a whole number"),
        (POD.replace("core: 30,", "core: many,"), "pod.yaml:25: spec.containers[0].resources"),
        (POD.replace("core: 30,", "core: [30],"), "expected one value, found a list"),
        (POD.replace('core: "30"', 'core: "31"'), "is 31, the limit 30: they must be equal"),
        (POD.replace("tencent.com/vcuda-core: 30, ", ""), "a limit must be set too"),
        (POD.replace("limits:", "limit:"), "resources.limit: unknown field; did you mean limits?"),
        (POD.replace("resources:", "resorces:"), "unknown field; did you mean resources?"),
        (POD + "status2: {}\n", "status2: unknown field; did you mean status?"),
        (
            POD.replace("nodeName: ignored", "affinity: {nodeAfinity: {}}"),
            "pod.yaml:8: spec.affinity.nodeAfinity: unknown field; did you mean nodeAffinity?",
        ),
        (POD.replace("core: 30,", "cores: 30,"), "a simulated node has no such resource"),
        (POD.replace("limits: {", "limits: {<<: {}, "), "merge keys (<<) are not supported"),
        (POD.replace("train.py]", '"\\ud800"]'), "command[1]: has half of a surrogate pair"),
        (
            POD.replace(
                "command: [python3",
                "envFrom: [{configMapRef: {name: settings}}]\n      command: [python3",
            ),
            "no ConfigMap settings in namespace team-a of what was given here",
        ),
        ("kind: " + "a" * 5000, "aaa…"),
    ],
)
def test_what_the_api_server_would_refuse_is_refused(text: str, message: str) -> None:
    assert message in refusal(text)


def test_a_second_pod_of_the_same_name_is_refused_across_files(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(POD)

    with pytest.raises(InputError, match=r"b\.yaml:1: a second pod team-a/trainer"):
        read_manifest([tmp_path / "a.yaml", tmp_path / "b.yaml"])


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00\x01\x02", b"\x89PNG\r\n\x1a\n"])
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pod.yaml"
    path.write_bytes(content)

    with pytest.raises(InputError, match=r"pod\.yaml"):
        read_manifest([path])


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_manifest([tmp_path / "none.yaml"])
    with pytest.raises(InputError, match="directory"):
        read_manifest([tmp_path])


@pytest.mark.parametrize("text", ["[" * 5000, "&a [*a]", "a: &a {b: *a}"])
def test_text_without_end_is_refused(text: str) -> None:
    assert refusal(text).startswith("pod.yaml")


def test_aliases_that_multiply_are_refused_in_no_time() -> None:
    rows = "".join(f"b{n}: &a{n + 1} [*a{n}, *a{n}, *a{n}, *a{n}]\n" for n in range(50))

    assert "more than 200000 values" in refusal(f"a: &a0 [x]\n{rows}")


@given(st.integers(0, len(POD)), st.text(max_size=5))
def test_a_damaged_pod_is_read_or_refused_but_never_crashes(at: int, extra: str) -> None:
    text = POD[:at] + extra + POD[at + len(extra) :]
    with contextlib.suppress(InputError):
        assert parse_pods(text, "pod.yaml")


@pytest.mark.parametrize(("written", "amount"), [("0", 0), ("1k", 1000), ("+5", 5), ("1Ki", 1024)])
def test_amounts_are_read_as_quantities(written: str, amount: int) -> None:
    text = with_container(f"      resources: {{limits: {{tencent.com/vcuda-core: {written}}}}}")

    assert only(text).containers[0].cores == amount
