"""Secrets do not leave the node in a bundle; what is no secret stays readable."""

import base64
import io
import json
import random
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.doctor import bundle
from gpumanager.doctor.bundle import Piece, piece, write
from gpumanager.doctor.redact import MARK, checkpoint_without_answers, redact

CHANCE = base64.b64encode(random.Random(1).randbytes(90)).decode()
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLWl0"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"Authorization: Bearer {JWT}", JWT),
        (f"the token {JWT} was read", JWT),
        ('{"password": "hunter2 with \\"quotes\\""}', "hunter2"),
        ("DB_PASSWORD=hunter2", "hunter2"),
        ("aws_secret_access_key = wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ("env HF_TOKEN=hf_abcdefghijklmnop", "abcdefghijklmnop"),
        ("key AKIAIOSFODNN7EXAMPLE here", "AKIAIOSFODNN7EXAMPLE"),
        ("github_pat_11ABCDEFG0123456789", "11ABCDEFG0123456789"),
        ("url: https://user:hunter2@registry.example/x", "hunter2"),
        ("--api-key hunter2 --port 80", "hunter2"),
        ("client-key-data: LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg"),
        ("kubeadm join --token abcdef.0123456789abcdef", "0123456789abcdef"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "MIIE"),
        (f"blob {CHANCE}", CHANCE),
        ("username=u,password=hunter2,rw", "hunter2"),
        ("'apikey': 'hunter2'", "hunter2"),
    ],
)
def test_a_secret_is_gone_and_leaves_a_mark(text: str, secret: str) -> None:
    clean, count = redact(text)

    assert secret not in clean
    assert MARK in clean
    assert count >= 1


@pytest.mark.parametrize(
    "text",
    [
        "GPU-cefb55f9-7c30-5d8e-b162-491f41e36526 is healthy",
        "/var/lib/kubelet/pods/6a1f0f5c-6a55-4a51-9d8e-2b1f3c4d5e6f/volumes/kubernetes.io~empty-dir",
        "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-0123456789abcdef0123.scope",
        'gpumanager_gpu_memory_bytes{gpu="gpu0",uuid="GPU-0"} 4.2e+10',
        "libcuda.so.1  /usr/lib/x86_64-linux-gnu/libcuda.so.555.58.02  soname libcuda.so.1  64 bit",
        "sha256:" + "0123456789abcdef" * 4,
        "tokens of time are counted in nanoseconds",
        "kernel.pid_max = 4194304",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == (text, 0)


@given(st.text(max_size=300))
def test_redacting_again_changes_nothing(text: str) -> None:
    clean, _ = redact(text)

    assert redact(clean)[0] == clean


def test_the_kubelet_s_checkpoint_keeps_devices_and_loses_answers() -> None:
    answer = base64.b64encode(b"ENV=hunter2").decode()
    entry = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "AllocResp": answer}
    text = json.dumps({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1})

    found = checkpoint_without_answers(text.encode())

    assert answer not in found
    assert '"PodUID": "u"' in found


@pytest.mark.parametrize("text", [b"", b"[]", b'"x"', b'{"Data": 3}'])
def test_what_is_no_checkpoint_is_left_out(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  json's, or ours
        checkpoint_without_answers(text)


def test_of_a_long_file_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 100)

    found = piece("log", "/log", "old " * 100 + "the end")

    assert found.cut
    assert len(found.text) <= 100
    assert found.text.endswith(b"the end")


def test_a_bundle_is_no_larger_than_it_may_be() -> None:
    large, fits = (piece("a", "x", "y" * size, left=50) for size in (60, 40))

    assert (large.text, fits.cause, fits.cut) == (b"", "", False)
    assert "would exceed" in large.cause


def test_the_manifest_names_what_is_there_and_what_is_not() -> None:
    pieces = (
        piece("a.txt", "/a", "password=x"),
        Piece("b.txt", "/b", cause="token=hunter2 failed"),
    )
    file = io.BytesIO()

    write(pieces, "1.2.3", 0.0, file)

    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        names, modes = archive.getnames(), {one.mode for one in archive.getmembers()}
        packed = archive.extractfile("gpumanager-bundle/manifest.json")
        assert packed
        said = json.load(packed)
    assert names == ["gpumanager-bundle/manifest.json", "gpumanager-bundle/a.txt"]
    assert modes == {0o600}
    assert (said["gpumanager"], said["made"]) == ("1.2.3", "1970-01-01T00:00:00Z")
    assert said["files"][0]["redacted"] == 1
    assert said["missing"] == [{"name": "b.txt", "origin": "/b", "cause": f"token={MARK} failed"}]
