"""Which containers hold some IDs: by the checkpoint, by PodResources where that is behind."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.deviceplugin.identity import device_checkpoint
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import AllocationID
from gpumanager.kubelet.checkpoint import CheckpointFile, DeviceHolder
from gpumanager.kubelet.pod_resources import NamedHolder
from gpumanager.names import VCORE
from gpumanager.sim.kubelet.checkpoint import write_checkpoint
from gpumanager.sim.kubelet.devices import DeviceBooks, Holding
from gpumanager.sim.kubelet.versions import KUBELET_1_36
from tests.deviceplugin.admission.admission_node import container, pod

A, B = pod("a", container(30, 4)), pod("b", container(30, 4))
IDS = ("x-c-0", "x-c-1")
OF_A = Grant(
    AllocationID("a"),
    DevicePluginSource("adm", IDS),
    candidate=Claimant(A.uid, "default", "a", "main"),
)


class PodResources:
    """Knows these pods."""

    def __init__(self, *names: str, by_get: bool = True) -> None:
        self._rows = tuple(
            NamedHolder("default", name, "main", VCORE, frozenset(IDS)) for name in names
        )
        self._by_get = by_get

    async def get(self, namespace: str, name: str) -> tuple[NamedHolder, ...]:
        assert namespace == "default"
        return tuple(row for row in self._rows if self._by_get and row.pod == name)

    async def list(self) -> tuple[NamedHolder, ...]:
        return self._rows


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_checkpoint, "PAUSE", 0.0)


async def holders(
    directory: Path,
    resources: PodResources | None,
    live: Collection[Grant] = (OF_A,),
    *,
    admitting: bool = False,
) -> list[str]:
    books = DeviceCheckpoint(directory / "absent", resources)
    try:
        _, found = await books.containers(VCORE, IDS, (A,), live, admitting=admitting)
    except NotResolved:
        return []
    return [one.uid for one in found]


async def test_where_the_checkpoint_does_not_say_it_the_pods_that_may_have_them_are_asked_for(
    tmp_path: Path,
) -> None:
    other = replace(OF_A, source=DevicePluginSource("adm", IDS[:1]))

    assert await holders(tmp_path, PodResources("a"), admitting=True) == [A.uid]
    assert await holders(tmp_path, PodResources("a"), (other,), admitting=True) == []
    assert await holders(tmp_path, PodResources(), admitting=True) == []
    assert await holders(tmp_path, None) == []


async def test_a_pod_that_is_not_listed_any_more_has_the_uid_of_its_grant(tmp_path: Path) -> None:
    of_b = replace(OF_A, candidate=Claimant(B.uid, "default", "b", "main"))

    assert await holders(tmp_path, PodResources("b"), (of_b,), admitting=True) == [B.uid]


async def test_all_pods_are_asked_for_only_while_none_may_be_under_admission(
    tmp_path: Path,
) -> None:
    resources = PodResources("a", by_get=False)

    assert await holders(tmp_path, resources, admitting=True) == []
    assert await holders(tmp_path, resources) == [A.uid]


async def test_a_pod_of_an_unknown_uid_is_left_out(tmp_path: Path) -> None:
    assert await holders(tmp_path, PodResources("b", by_get=False)) == []


async def test_a_checkpoint_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads = tmp_path / "checkpoint", list[int]()
    books = DeviceCheckpoint(path)
    assert await books.read() is None

    read = CheckpointFile.read

    def counted(file: CheckpointFile) -> tuple[DeviceHolder, ...]:
        reads.append(1)
        return read(file)

    monkeypatch.setattr(CheckpointFile, "read", counted)
    given = DeviceBooks(holdings=(Holding(A.uid, "main", VCORE, frozenset(IDS)),))
    for held in (given, DeviceBooks()):
        write_checkpoint(held, KUBELET_1_36, path)
        again = [await books.read() for _ in range(3)]
        assert (
            again
            == [tuple(DeviceHolder(A.uid, "main", VCORE, one.ids) for one in held.holdings)] * 3
        )

    assert len(reads) == 2
