"""Which containers hold some IDs, and what they were given, by the kubelet's checkpoint."""

import base64
from pathlib import Path

import pytest

from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.identity import device_checkpoint
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint, given
from gpumanager.grants.refusals import NotResolved
from gpumanager.kubelet.checkpoint import DeviceHolder, Known, read_entries
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.devices import DeviceBooks, Holding
from tests.deviceplugin.admission.admission_node import container, pod

A = pod("a", container(30, 4))
IDS = ("x-c-0", "x-c-1")
HELD = DeviceBooks(holdings=(Holding(A.uid, "main", VCORE, frozenset(IDS)),))


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_checkpoint, "PAUSE", 0.0)


async def test_a_checkpoint_that_does_not_have_the_ids_yet_is_read_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads = tmp_path / "checkpoint", list[int]()
    books, read = DeviceCheckpoint(path), DeviceCheckpoint.read

    async def counted(books: DeviceCheckpoint) -> tuple[DeviceHolder, ...] | None:
        reads.append(1)
        if len(reads) == 3:
            path.write_text(HELD.checkpoint_text(-1))
        return await read(books)

    monkeypatch.setattr(DeviceCheckpoint, "read", counted)

    _, (found,) = await books.containers(VCORE, IDS, (A,))
    assert (found.uid, found.name, found.core_ids) == (A.uid, "main", frozenset(IDS))
    with pytest.raises(NotResolved, match="does not say yet which container holds these 1 devices"):
        await books.containers(VMEMORY, IDS[:1], (A,))
    assert len(reads) == 6


async def test_a_checkpoint_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads = tmp_path / "checkpoint", list[int]()
    books = DeviceCheckpoint(path)
    assert await books.read() is None

    def counted(path: Path, known: Known) -> Known:
        reads.append(1)
        return read_entries(path, known)

    monkeypatch.setattr(device_checkpoint, "read_entries", counted)
    for held in (HELD, DeviceBooks()):
        path.unlink(missing_ok=True)
        path.write_text(held.checkpoint_text(-1))
        again = [await books.read() for _ in range(3)]
        assert (
            again
            == [tuple(DeviceHolder(A.uid, "main", VCORE, one.ids) for one in held.holdings)] * 3
        )

    assert len(reads) == 2


async def test_a_half_written_checkpoint_is_none_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    books = DeviceCheckpoint(path)
    path.write_text(HELD.checkpoint_text(-1))
    before, whole = await books.read(), path.read_bytes()

    path.write_bytes(whole[:-4])
    assert await books.read() is None
    path.write_bytes(whole)
    assert await books.read() == before != ()


RESPONSE = pb.ContainerAllocateResponse(
    envs={"VCUDA_ALLOCATION": "7f", "EMPTY": ""},
    mounts=[pb.Mount(container_path="/etc/vcuda", host_path="/host")],
    annotations={"tencent.com/vcuda-core": "30"},
).SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("response", "envs"),
    [
        (base64.b64encode(RESPONSE).decode(), {"VCUDA_ALLOCATION": "7f", "EMPTY": ""}),
        *((wrong, {}) for wrong in ("", "CgA", "!", "CgX///8=")),
        (base64.b64encode(RESPONSE[:9]).decode(), {}),
    ],
)
def test_what_a_container_was_given_is_in_the_answer_to_its_cores(
    response: str, envs: dict[str, str]
) -> None:
    cores, memory = (
        DeviceHolder(A.uid, "main", what, frozenset(), response) for what in (VCORE, VMEMORY)
    )

    assert given([cores, memory]) == {(A.uid, "main"): envs}
    assert given([memory]) == {}
