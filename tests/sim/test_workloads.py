"""Workloads, volumes and variables from YAML: what a simulated node makes of them."""

import io
import re
from pathlib import Path

import pytest

from gpumanager.errors import InputError
from gpumanager.sim.manifest.expansion import expand_environment
from gpumanager.sim.manifest.pods import Manifest, Pod, parse_pods, read_manifest
from gpumanager.sim.manifest.volumes import PodVolume, VolumeMount

TEMPLATE = (
    "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: m, command: [x]}]}}"
)


def workload(kind: str, version: str, spec: str) -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web}}\nspec: {{{spec}}}"


def names(text: str) -> list[str]:
    return [pod.name for pod in parse_pods(text, "x.yaml")]


def manifest(tmp_path: Path, text: str) -> Manifest:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    return read_manifest([path])


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_pods(text, "x.yaml")
    return str(caught.value)


GENERATED = "[bcdfghjklmnpqrstvwxz2456789]{5}"


@pytest.mark.parametrize(
    ("text", "count", "shape"),
    [
        (workload("Deployment", "apps/v1", TEMPLATE), 1, rf"web-[a-z0-9]{{10}}-{GENERATED}"),
        (
            workload("Deployment", "apps/v1", f"replicas: 3, {TEMPLATE}"),
            3,
            rf"web-[a-z0-9]{{10}}-{GENERATED}",
        ),
        (workload("Deployment", "apps/v1", f"replicas: 0, {TEMPLATE}"), 0, ""),
        (workload("ReplicaSet", "apps/v1", f"replicas: 2, {TEMPLATE}"), 2, f"web-{GENERATED}"),
        (workload("DaemonSet", "apps/v1", TEMPLATE), 1, f"web-{GENERATED}"),
        (workload("StatefulSet", "apps/v1", f"replicas: 2, {TEMPLATE}"), 2, "web-[01]"),
        (
            workload("StatefulSet", "apps/v1", f"ordinals: {{start: 7}}, {TEMPLATE}"),
            1,
            "web-7",
        ),
        (workload("Job", "batch/v1", TEMPLATE), 1, f"web-{GENERATED}"),
        (
            workload("Job", "batch/v1", f"completions: 6, parallelism: 2, {TEMPLATE}"),
            2,
            f"web-{GENERATED}",
        ),
        (
            workload(
                "Job",
                "batch/v1",
                f"completions: 2, parallelism: 4, completionMode: Indexed, {TEMPLATE}",
            ),
            2,
            rf"web-[01]-{GENERATED}",
        ),
        (
            workload("CronJob", "batch/v1", f"schedule: x, jobTemplate: {{spec: {{{TEMPLATE}}}}}"),
            1,
            rf"web-\d+-{GENERATED}",
        ),
    ],
)
def test_a_workload_is_the_pods_that_its_controller_would_make(
    text: str, count: int, shape: str
) -> None:
    found = names(text)

    assert len(set(found)) == len(found) == count
    assert all(re.fullmatch(shape, name) for name in found)


def test_names_are_the_same_in_the_next_run() -> None:
    text = workload("Deployment", "apps/v1", f"replicas: 3, {TEMPLATE}")

    assert names(text) == names(text)


def test_pods_of_an_indexed_job_know_their_number() -> None:
    spec = f"completions: 2, parallelism: 2, completionMode: Indexed, {TEMPLATE}"
    pods = parse_pods(workload("Job", "batch/v1", spec), "x.yaml")

    numbers = [dict(pod.containers[0].environment)["JOB_COMPLETION_INDEX"] for pod in pods]
    assert numbers == ["0", "1"]


def test_what_does_not_run_at_once_is_noted(tmp_path: Path) -> None:
    spec = f"completions: 6, parallelism: 2, {TEMPLATE}"

    assert manifest(tmp_path, workload("Job", "batch/v1", spec)).notes == (
        f"{tmp_path}/x.yaml:1: Job runs 2 of its 6 completions: as many as run at the same time",
    )


def test_other_kinds_are_left_out_with_a_note(tmp_path: Path) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: []}"
    text = f"{service}\n---\n{workload('Deployment', 'apps/v1', TEMPLATE)}"

    found = manifest(tmp_path, text)

    assert len(found.pods) == 1
    assert found.notes == (
        f"{tmp_path}/x.yaml:1: Service left out: a simulated node has no use for it",
    )
    with pytest.raises(InputError, match=r"no pod in it: .*Service left out"):
        manifest(tmp_path, service)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: apps/v1\nkind: Deploymnt", "no kind Deploymnt; did you mean Deployment?"),
        (workload("Deployment", "apps/v1", ""), "spec: template is missing"),
        (
            workload("Deployment", "apps/v1", f"replcas: 2, {TEMPLATE}"),
            "spec.replcas: unknown field; did you mean replicas?",
        ),
        (workload("Deployment", "apps/v1", f"replicas: 5000, {TEMPLATE}"), "takes at most 1000"),
        (workload("Deployment", "batch/v1", TEMPLATE), "expected apiVersion apps/v1"),
        (
            workload("Deployment", "apps/v1", TEMPLATE.replace("command: [x]", "comand: [x]")),
            "unknown field; did you mean command?",
        ),
    ],
)
def test_a_workload_is_read_strictly(text: str, message: str) -> None:
    assert message in refusal(text)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = workload("StatefulSet", "apps/v1", TEMPLATE).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))

    assert [pod.name for pod in read_manifest([Path("-")]).pods] == ["web-0"]


SOURCES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: "fast$(X)", app.conf: text}
---
apiVersion: v1
kind: Secret
metadata: {name: token}
data: {key: aHVzaA==}
stringData: {other: plain}
---
"""
MAIN = "name: m, command: [x]"


def pod_text(container: str = MAIN, spec: str = "", meta: str = "name: a") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{{meta}}}\n"
        f"spec: {{containers: [{{{container}}}], {spec}}}\n"
    )


def only(text: str) -> Pod:
    (pod,) = parse_pods(text, "x.yaml")
    return pod


def variables(pod: Pod) -> dict[str, str]:
    return expand_environment(pod.containers[0].environment, {})


def test_variables_come_from_config_maps_and_secrets_of_the_same_file() -> None:
    env = (
        "env: [{name: MODE, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}, "
        "{name: KEY, valueFrom: {secretKeyRef: {name: token, key: key}}}, "
        "{name: GONE, valueFrom: {secretKeyRef: {name: none, key: x, optional: true}}}], "
        "envFrom: [{prefix: T_, secretRef: {name: token}}]"
    )

    found = variables(only(SOURCES + pod_text(f"{MAIN}, {env}")))

    assert found == {"T_key": "hush", "T_other": "plain", "MODE": "fast$(X)", "KEY": "hush"}


def test_a_field_that_is_null_counts_as_not_there() -> None:
    source = "{fieldRef: null, configMapKeyRef: {name: settings, key: mode}}"
    env = f"env: [{{name: MODE, valueFrom: {source}}}]"
    volumes = "volumes: [{name: conf, configMap: {name: settings, items: null}}]"
    mounts = "volumeMounts: [{name: conf, mountPath: /conf}]"

    pod = only(SOURCES + pod_text(f"{MAIN}, {env}, {mounts}", volumes))

    assert variables(pod) == {"MODE": "fast$(X)"}
    assert pod.volumes[0].files == {"mode": b"fast$(X)", "app.conf": b"text"}


def test_variables_of_a_source_without_a_name_are_refused() -> None:
    with pytest.raises(InputError, match="configMapRef: name is missing"):
        only(SOURCES + pod_text(f"{MAIN}, envFrom: [{{configMapRef: {{}}}}]"))


def test_variables_come_from_fields_of_the_pod() -> None:
    paths = {
        "NAME": "metadata.name",
        "NAMESPACE": "metadata.namespace",
        "UID": "metadata.uid",
        "APP": "metadata.labels['app']",
        "NONE": "metadata.annotations['none']",
        "NODE": "spec.nodeName",
        "IP": "status.podIP",
    }
    env = ", ".join(
        f'{{name: {name}, valueFrom: {{fieldRef: {{fieldPath: "{path}"}}}}}}'
        for name, path in paths.items()
    )
    pod = only(pod_text(f"{MAIN}, env: [{env}]", meta="name: a, labels: {app: web}"))

    assert variables(pod) == {
        "NAME": "a",
        "NAMESPACE": "default",
        "UID": pod.uid,
        "APP": "web",
        "NONE": "",
        "NODE": "simulated",
        "IP": "127.0.0.1",
    }


def test_simple_volumes_are_mounted() -> None:
    volumes = (
        "volumes: [{name: data, emptyDir: {}}, {name: etc, hostPath: {path: /etc}}, "
        "{name: conf, configMap: {name: settings}}, "
        "{name: sec, secret: {secretName: token, items: [{key: key, path: sub/k}]}}]"
    )
    mounts = (
        "volumeMounts: [{name: data, mountPath: /data, subPath: in}, {name: etc, "
        "mountPath: /hostetc, readOnly: true}, {name: conf, mountPath: /conf}]"
    )
    pod = only(SOURCES + pod_text(f"{MAIN}, {mounts}", volumes))

    assert pod.volumes == (
        PodVolume("data"),
        PodVolume("etc", host="/etc"),
        PodVolume("conf", files={"mode": b"fast$(X)", "app.conf": b"text"}, read_only=True),
        PodVolume("sec", files={"sub/k": b"hush"}, read_only=True),
    )
    assert pod.containers[0].mounts == (
        VolumeMount("data", "/data", "in"),
        VolumeMount("etc", "/hostetc", read_only=True),
        VolumeMount("conf", "/conf", read_only=True),
    )


def test_the_token_that_an_api_server_mounts_in_each_pod_is_no_matter() -> None:
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    pod = only(
        pod_text(
            f"{MAIN}, volumeMounts: [{{name: kube-api-access-x2x, mountPath: {path}}}]",
            "volumes: [{name: kube-api-access-x2x, projected: {sources: []}}]",
        )
    )

    assert (pod.volumes, pod.containers[0].mounts) == ((), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            pod_text(spec="volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]"),
            "volume d: a simulated node has no persistentVolumeClaim, only emptyDir, hostPath",
        ),
        (
            pod_text(spec="volumes: [{name: d}]"),
            "volume d: a simulated node has no volume without a kind",
        ),
        (
            pod_text(spec="volumes: [{name: d, configMap: {name: none}}]"),
            "no ConfigMap none in namespace default of what was given here",
        ),
        (
            pod_text(f"{MAIN}, volumeMounts: [{{name: d, mountPath: /d}}]"),
            "volumeMounts[0].name: spec.volumes has no d",
        ),
        (
            pod_text(
                f"{MAIN}, volumeMounts: [{{name: d, mountPath: /d, subPath: ../x}}]",
                "volumes: [{name: d, emptyDir: {}}]",
            ),
            "'../x' is not a path inside of the volume",
        ),
        (
            pod_text(f"{MAIN}, env: [{{name: A, valueFrom: {{fieldRef: {{fieldPath: spec.x}}}}}}]"),
            "a simulated node does not know spec.x of a pod",
        ),
        (
            pod_text(
                f"{MAIN}, env: [{{name: A, valueFrom: {{resourceFieldRef: {{resource: x}}}}}}]"
            ),
            "found resourceFieldRef",
        ),
        (SOURCES.replace("aHVzaA==", "'?'") + pod_text(), "not base64; stringData takes plain"),
    ],
)
def test_what_is_not_there_is_refused_by_its_name(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize(("written", "amount"), [("1e2", 100), ("3E1", 30), ("0.1k", 100)])
def test_amounts_may_have_exponents(written: str, amount: int) -> None:
    resources = f"resources: {{limits: {{tencent.com/vcuda-core: {written}}}}}"

    assert only(pod_text(f"{MAIN}, {resources}")).containers[0].cores == amount
