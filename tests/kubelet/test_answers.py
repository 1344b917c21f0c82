"""What the kubelet's checkpoint tells of the answers to Allocate."""

import base64
import json
from pathlib import Path

import pytest

from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.kubelet.checkpoint import CheckpointUnreadable, parse_answers, read_answers

RESPONSE = pb.ContainerAllocateResponse(
    envs={"VCUDA_ALLOCATION": "7f", "EMPTY": ""},
    mounts=[pb.Mount(container_path="/etc/vcuda", host_path="/host")],
    annotations={"tencent.com/vcuda-core": "30"},
).SerializeToString()


def checkpoint(response: object) -> bytes:
    entry = {
        "PodUID": "u1",
        "ContainerName": "main",
        "ResourceName": "tencent.com/vcuda-core",
        "DeviceIDs": ["a"],
        "AllocResp": response,
    }
    return json.dumps({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 7}).encode()


def test_the_environment_that_a_container_was_given_is_read() -> None:
    (answered,) = parse_answers(checkpoint(base64.b64encode(RESPONSE).decode()))

    assert (answered.pod_uid, answered.container) == ("u1", "main")
    assert answered.envs == {"VCUDA_ALLOCATION": "7f", "EMPTY": ""}


@pytest.mark.parametrize(
    "response",
    [
        *("", None, "CgA", "!", "CgX///8="),
        pytest.param(base64.b64encode(RESPONSE[:9]).decode(), id="cut short"),
    ],
)
def test_an_answer_that_cannot_be_understood_says_nothing(response: object) -> None:
    (answered,) = parse_answers(checkpoint(response))

    assert answered.envs == {}


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", checkpoint(7)])
def test_a_checkpoint_that_cannot_be_used_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_bytes(text)

    with pytest.raises(CheckpointUnreadable, match=str(path)):
        read_answers(path)
