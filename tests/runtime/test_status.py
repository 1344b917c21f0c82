"""What each runtime's status says, in the forms that containerd, CRI-O and dockershim give it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.ids import ContainerID, PodUID
from gpumanager.runtime.api import runtime_v1_pb2 as pb
from gpumanager.runtime.status import (
    Bind,
    Container,
    LiveContainer,
    container_of,
    live_container,
)
from tests.runtime.cgroup_texts import ID, UID

LABELS = {
    "io.kubernetes.pod.uid": UID,
    "io.kubernetes.pod.namespace": "lab",
    "io.kubernetes.pod.name": "trainer",
    "io.kubernetes.container.name": "main",
}
CONTAINER = Container(ContainerID(ID), PodUID(UID), "lab", "trainer", "main")

CONTAINERD = {
    "sandboxID": "5a" * 32,
    "pid": 4711,
    "config": {
        "envs": [{"key": "VCUDA_ALLOCATION", "value": "n0nce"}],
        "devices": [{"host_path": "/host/nvidia3", "container_path": "/dev/nvidia0"}],
    },
    "runtimeSpec": {
        "process": {"env": ["PATH=/bin", "VCUDA_ALLOCATION=n0nce"]},
        "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 3}]},
    },
}
CRIO = {name: CONTAINERD[name] for name in ("sandboxID", "pid", "runtimeSpec")}
CONFIG_ONLY = {name: CONTAINERD[name] for name in ("pid", "config")}


def status(info: str | None = None, **changes: Any) -> pb.ContainerStatusResponse:
    fields: dict[str, Any] = {"id": ID, "labels": LABELS, "state": pb.CONTAINER_RUNNING, **changes}
    return pb.ContainerStatusResponse(
        status=pb.ContainerStatus(**fields), info={} if info is None else {"info": info}
    )


@pytest.mark.parametrize(
    ("told", "devices", "envs"),
    [
        (
            CONTAINERD,
            (Bind("/host/nvidia3", "/dev/nvidia0"),),
            {"PATH": "/bin", "VCUDA_ALLOCATION": "n0nce"},
        ),
        (
            CRIO,
            (Bind("/dev/nvidia0", "/dev/nvidia0"),),
            {"PATH": "/bin", "VCUDA_ALLOCATION": "n0nce"},
        ),
        (
            CONFIG_ONLY,
            (Bind("/host/nvidia3", "/dev/nvidia0"),),
            {"VCUDA_ALLOCATION": "n0nce"},
        ),
    ],
    ids=["containerd", "CRI-O", "configuration only"],
)
def test_devices_variables_and_pid_are_read_from_what_is_told_beside_cri(
    told: dict[str, Any], devices: tuple[Bind, ...], envs: dict[str, str]
) -> None:
    live = live_container(status(json.dumps(told)))

    assert live is not None
    assert (live.pid, live.devices, live.envs) == (4711, devices, envs)


def test_cri_itself_tells_names_mounts_and_annotations() -> None:
    mounts = [pb.Mount(host_path="/vm/alloc/n0nce", container_path="/etc/vcuda", readonly=True)]

    live = live_container(status(mounts=mounts, annotations={"tencent.com/vcuda-core": "30"}))

    assert live == LiveContainer(
        CONTAINER,
        mounts=(Bind("/vm/alloc/n0nce", "/etc/vcuda"),),
        annotations={"tencent.com/vcuda-core": "30"},
    )


@pytest.mark.parametrize("state", [pb.CONTAINER_CREATED, pb.CONTAINER_EXITED, pb.CONTAINER_UNKNOWN])
def test_what_does_not_run_is_not_live(state: pb.ContainerState) -> None:
    assert live_container(status(state=state)) is None


@pytest.mark.parametrize("label", ["io.kubernetes.pod.uid", "io.kubernetes.container.name"])
def test_what_the_kubelet_did_not_make_is_no_container_of_a_pod(label: str) -> None:
    labels = {name: value for name, value in LABELS.items() if name != label}

    assert container_of(ID, labels) is None
    assert live_container(status(labels=labels)) is None


@pytest.mark.parametrize(
    "info",
    [
        "",
        "{",
        "[]",
        "null",
        '{"pid": "4711"}',
        '{"pid": true}',
        '{"runtimeSpec": []}',
        '{"config": {"envs": [3], "devices": {"a": 1}}}',
        '{"runtimeSpec": {"linux": 7}}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_what_cannot_be_understood_is_left_out(info: str) -> None:
    live = live_container(status(info))

    assert live is not None
    assert (live.container, live.devices) == (CONTAINER, ())
    assert live.pid is not True
    assert live.pid == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["pid", "config", "runtimeSpec", "process", "env", "envs", "devices"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


@given(JSON)
def test_no_runtime_s_json_hides_the_container(told: Any) -> None:
    live = live_container(status(json.dumps(told)))

    assert live is not None
    assert live.container == CONTAINER
