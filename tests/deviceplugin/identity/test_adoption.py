"""Grants that a node without its journal takes from what it finds, as tables."""

import base64
from collections.abc import Mapping
from typing import Any

from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.identity.adoption import (
    BY_CONTAINER,
    BY_DIRECTORY,
    BY_KUBELET,
    adopt_booked,
    adopt_used,
)
from gpumanager.deviceplugin.identity.evidence import Evidence
from gpumanager.grants.grant import (
    Claimant,
    DevicePluginSource,
    EvidenceSource,
    Grant,
    Share,
    State,
)
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID, ContainerID, PodUID
from gpumanager.isolation.edits import ENV_ALLOCATION, ENV_GPUS
from gpumanager.kubelet.checkpoint import DeviceHolder
from gpumanager.limits.values import Limit
from gpumanager.names import ANNOTATION_DEVICE, CONTAINER_VCUDA, VCORE, VMEMORY
from gpumanager.placement.values import Evaluator
from gpumanager.runtime.status import Bind, Container, LiveContainer
from gpumanager.units import MEMORY_BLOCK, Bytes
from tests.deviceplugin.admission.admission_node import container, gpus, pod

TOPOLOGY = gpus(2)
LEDGER = Ledger(TOPOLOGY)
ONE, TWO = TOPOLOGY.gpus
POD = pod("a", container(30, 4), vcuda_core_limit="60")
KEY = POD.uid, "main"
LIMITS = (Limit(TWO.uuid, Bytes(4 * MEMORY_BLOCK), 30, 60),)


def ids(resource: str, count: int, index: int = 0) -> tuple[str, ...]:
    return tuple(i for i, gpu in LEDGER.ids.of(resource) if gpu.index == index)[:count]


def live(*, mounted: str = "", **more: Any) -> LiveContainer:
    who = Container(ContainerID("id-a"), POD.uid, "default", "a", "main")
    mounts = (Bind(f"/vm/alloc/{mounted}", str(CONTAINER_VCUDA)),) if mounted else ()
    annotations = {VCORE: "30", **more.pop("annotations", {})}
    return LiveContainer(who, mounts=mounts, annotations=annotations, **more)


def said(found: tuple[Grant, ...]) -> list[tuple[object, ...]]:
    return [
        (one.id, dict(one.shares), one.isolation, one.state, one.pod and one.pod.name, one.why)
        for one in found
    ]


def answer(envs: Mapping[str, str]) -> str:
    """Ours, as the kubelet keeps it."""
    return base64.b64encode(pb.ContainerAllocateResponse(envs=envs).SerializeToString()).decode()


def booked(
    known: tuple[Grant, ...],
    envs: Mapping[str, str],
    cores: tuple[str, ...],
    *,
    listed: bool = True,
) -> tuple[Grant, ...]:
    held = (
        DeviceHolder(*KEY, VCORE, frozenset(cores), answer(envs)),
        DeviceHolder(*KEY, VMEMORY, frozenset(ids(VMEMORY, 4))),
    )
    view = (POD,) if listed else ()
    return adopt_booked(LEDGER, known, Evidence(held, view=view), 5.0)


OURS = {ENV_ALLOCATION: "n", ENV_GPUS: TWO.uuid}


def test_what_the_kubelet_gave_is_granted_on_the_gpus_of_its_answer() -> None:
    """Else on those that the IDs name: the answer is not known, or names too many."""
    share, whole = Share(30, 4), Share(100, 4)
    row = (share, "shim", State.CONFIRMED, "a", BY_KUBELET)
    two = {ENV_ALLOCATION: "n", ENV_GPUS: f"{ONE.uuid},{TWO.uuid}"}
    adopted = f"adopted-{POD.uid}-main"

    def of(name: str, gpu: str, row: tuple[Any, ...]) -> list[tuple[object, ...]]:
        return [(name, {gpu: row[0]}, *row[1:])]

    none: tuple[Grant, ...] = ()
    before = {ENV_ALLOCATION: "n", "NVIDIA_VISIBLE_DEVICES": TWO.uuid}  # there was ENV_GPUS
    assert said(booked(none, OURS, ids(VCORE, 30))) == of("n", TWO.uuid, row)
    assert said(booked(none, before, ids(VCORE, 30))) == of("n", TWO.uuid, row)
    void = OURS | {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert said(booked(none, void, ids(VCORE, 30))) == of("n", TWO.uuid, row)
    assert said(booked(none, two, ids(VCORE, 30))) == of("n", ONE.uuid, row)
    assert said(booked(none, {}, ids(VCORE, 30, 1))) == of(adopted, TWO.uuid, row)
    assert said(booked(none, OURS, ids(VCORE, 100))) == of(
        "n", TWO.uuid, (whole, "passthrough", *row[2:])
    )


def test_nothing_is_adopted_of_an_ended_pod_of_gpu_manager_or_of_a_known_grant() -> None:
    known = (Grant(AllocationID("k"), DevicePluginSource("", ids(VCORE, 30))),)
    originals = tuple(f"tencent.com/vcuda-core-{i}" for i in range(30))

    assert booked((), OURS, ids(VCORE, 30), listed=False) == ()
    assert booked((), {}, originals) == ()
    assert booked(known, OURS, ids(VCORE, 30)) == ()


def used(
    running: LiveContainer | None,
    limits: tuple[Limit, ...] = (),
    checkpoint: tuple[DeviceHolder, ...] | None = None,
) -> list[tuple[object, ...]]:
    directories = {AllocationID("n"): limits} if limits else {}
    containers = None if running is None else (running,)
    seen = Evidence(checkpoint, live=containers, directories=directories, view=(POD,))
    found = adopt_used(TOPOLOGY, (), seen, 5.0)
    assert all(isinstance(one.source, EvidenceSource) for one in found)
    return said(found)


def test_a_running_container_has_the_limits_of_its_directory_or_whole_gpus() -> None:
    row = (State.CONFIRMED, "a", BY_CONTAINER)
    whole = {ANNOTATION_DEVICE: "/dev/nvidia0,/dev/nvidia1"}
    theirs = {ENV_ALLOCATION: "w", ENV_GPUS: f"{TWO.uuid},GPU-gone"}
    both = {ONE.uuid: Share(100, 0), TWO.uuid: Share(100, 0)}

    assert used(live(mounted="n"), LIMITS) == [("n", {TWO.uuid: Share(30, 4)}, "shim", *row)]
    assert used(live(envs=theirs, annotations=whole)) == [("w", both, "passthrough", *row)]
    assert used(live(envs=theirs)) == [("w", {TWO.uuid: Share(100, 0)}, "passthrough", *row)]
    assert used(live(envs={})) == []


def test_a_directory_holds_for_nobody_until_checkpoint_and_runtime_both_tell() -> None:
    held = [("n", {TWO.uuid: Share(30, 4)}, "shim", State.ANSWERED, None, BY_DIRECTORY)]
    other = live(envs={})

    assert used(None, LIMITS, ()) == held
    assert used(other, LIMITS, None) == held
    assert used(other, LIMITS, ()) == []


def test_a_name_of_another_pod_s_directory_is_not_believed() -> None:
    found = used(live(envs={ENV_ALLOCATION: "n"}), LIMITS, ())

    assert [one[0] for one in found] == [f"adopted-{PodUID('uid-a')}-main"]


HALF = DevicePluginSource("", (), ids(VMEMORY, 4))
MAIN = Claimant(POD.uid, "default", "a", "main")
OTHER = Claimant(PodUID("uid-b"), "default", "b", "main")
NAMED = f"adopted-{POD.uid}-main"
KNOWN: list[tuple[str, Grant, list[str]]] = [
    ("a half", Grant(AllocationID("n"), HALF), ["n"]),
    (
        "without a proof",
        Grant(AllocationID("n"), EvidenceSource("adm"), state=State.CONFIRMED, pod=MAIN),
        ["n"],
    ),
    ("proved", Grant(AllocationID("n"), HALF, state=State.CONFIRMED, pod=MAIN), []),
    (
        "another pod's, proved",
        Grant(AllocationID("n"), HALF, state=State.CONFIRMED, pod=OTHER),
        [NAMED],
    ),
    (
        "another pod's, of another name",
        Grant(AllocationID("m"), HALF, state=State.CONFIRMED, pod=OTHER),
        ["n"],
    ),
]


def test_what_the_kubelet_gave_replaces_what_is_known_by_its_name_unless_that_is_proved() -> None:
    found = {
        what: [one.id for one in booked((grant,), OURS, ids(VCORE, 30))] for what, grant, _ in KNOWN
    }

    assert found == {what: names for what, _, names in KNOWN}


def test_whose_it_is_and_what_its_pod_may_use_is_told_by_whatever_knows_the_pod() -> None:
    held = (DeviceHolder(*KEY, VCORE, frozenset(ids(VCORE, 30)), answer(OURS)),)
    cases = {
        "the list of pods": (Evidence(held, view=(POD,)), MAIN, 60),
        "the runtime": (Evidence(held, live=(live(),)), MAIN, None),
        "nothing": (Evidence(held), Claimant(POD.uid, "", "", "main"), None),
    }

    found = {
        what: [(one.pod, one.ceiling) for one in adopt_booked(LEDGER, (), seen, 5.0)]
        for what, (seen, _, _) in cases.items()
    }

    assert found == {what: [(who, ceiling)] for what, (_, who, ceiling) in cases.items()}


def test_whole_gpus_in_use_were_placed_as_so_many_are() -> None:
    theirs = {ENV_ALLOCATION: "w", ENV_GPUS: TWO.uuid}
    both = {ENV_ALLOCATION: "w", ENV_GPUS: f"{ONE.uuid},{TWO.uuid}"}
    seen = [Evidence(live=(live(envs=envs),), view=(POD,)) for envs in (theirs, both)]

    found = [adopt_used(TOPOLOGY, (), one, 5.0)[0].evaluator for one in seen]

    assert found == [Evaluator.FRAGMENT, Evaluator.LINK]
