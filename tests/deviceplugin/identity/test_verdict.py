"""When a grant is over, suspect or kept: a situation for each row, and its opposites."""

from dataclasses import replace
from typing import Any

import pytest

from gpumanager.deviceplugin.admission.transaction import Candidate, Transaction
from gpumanager.deviceplugin.identity.verdict import (
    ROWS,
    GrantFacts,
    GrantOutcome,
    Occasion,
    ended_grants,
    verdict,
)
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import (
    Claimant,
    DevicePluginSource,
    EvidenceSource,
    Grant,
    LegacySource,
    Share,
    State,
)
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.pod import PodView
from gpumanager.kubelet.checkpoint import DeviceHolder
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import container, pod

OWN, OTHER = pod("own", container(30, 2)), pod("other", container(30, 2))
GPU = GpuUUID("GPU-0")
IDS = DevicePluginSource("adm", ("c-1",), ("m-1",))


def grant(source: DevicePluginSource = IDS, **more: Any) -> Grant:
    shares = {GPU: Share(len(source.core_ids) or 1, len(source.memory_ids))}
    who = Claimant(OWN.uid, "default", "own", "main")
    return Grant(AllocationID("a"), source, shares, **{"candidate": who, **more})


def confirmed(**more: Any) -> Grant:
    one = grant(**more)
    return replace(one, state=State.CONFIRMED, pod=one.candidate)


def open_(admission: str, *pods: PodView, viewed: bool = True, **more: Any) -> Transaction:
    candidates = tuple(Candidate(one) for one in pods)
    return Transaction(admission, AllocationID("b"), 1.0, viewed, candidates, **more)


def given(resource: str, *ids: str, uid: PodUID = OWN.uid) -> DeviceHolder:
    return DeviceHolder(uid, "main", resource, frozenset(ids))


CORES, MEMORY = given(VCORE, "c-1"), given(VMEMORY, "m-1")
ENDED = replace(OWN, phase="Succeeded")
HALF = DevicePluginSource("adm", (), ("m-1",))
NEXT = open_("adm-2", OTHER)

NEXT_POD, CONTESTED, NO_ROOM = Occasion.NEXT_POD, Occasion.CONTESTED, Occasion.NO_ROOM
MOVE, PASS = Occasion.MOVE, Occasion.PASS
WHOLE = Candidate(OWN, done=frozenset({VCORE, VMEMORY}))
RUNS = frozenset({AllocationID("a")})
PUT_BACK = open_("adm-2", sizes={VCORE: 30})


def following(before: Transaction, now: Transaction = NEXT) -> GrantFacts:
    """Another transaction came after the one that this grant is of."""
    return GrantFacts(admission=now, previous=before)


def during(*pods: PodView, admission: Transaction = NEXT, **more: Any) -> GrantFacts:
    return GrantFacts(pods, admission=admission, **more)


def unlike(*ids: str, **more: Any) -> GrantFacts:
    return GrantFacts((OWN,), (given(VCORE, *ids),), **more)


ALL_ASKED = replace(open_("adm", OWN), candidates=(WHOLE,))
OWN_ADMISSION = open_("adm", OWN)
INHERITED = LegacySource("adm", ("x",))

OVER: dict[str, tuple[Grant, Occasion, GrantFacts]] = {
    "memory without cores": (grant(HALF), NEXT_POD, following(OWN_ADMISSION)),
    "cores, of a pod not asked for in whole": (
        grant(),
        NEXT_POD,
        following(OWN_ADMISSION),
    ),
    "its pod has ended": (confirmed(), CONTESTED, during(ENDED)),
    "its pod is gone": (confirmed(), CONTESTED, during(OTHER)),
    "half answered": (grant(HALF), NO_ROOM, during(OWN)),
    "the checkpoint does not have it": (grant(), NO_ROOM, during(OWN, checkpoint=())),
    "an ended pod has it": (grant(), NO_ROOM, during(ENDED, checkpoint=(CORES,))),
    "ended, and there is no room": (confirmed(), NO_ROOM, during(ENDED)),
    "put back": (confirmed(), NO_ROOM, during(OWN, admission=PUT_BACK)),
    "ended, and its GPU is to go over": (confirmed(), MOVE, GrantFacts((ENDED,))),
    "it never started": (grant(), PASS, GrantFacts((OWN,), ())),
    "its container has other cores": (confirmed(), PASS, unlike("c-9")),
    "ended, by the list of pods": (confirmed(), PASS, GrantFacts((ENDED,), (CORES,))),
    "ended, by the checkpoint alone": (confirmed(), PASS, GrantFacts(None, ())),
}
SUSPECT: dict[str, tuple[Grant, Occasion, GrantFacts]] = {
    "no pods can be read": (confirmed(), CONTESTED, GrantFacts(None, admission=NEXT)),
    "only answered": (grant(), CONTESTED, during(OWN)),
    "ended, and its container runs": (grant(), CONTESTED, during(ENDED, lingering=RUNS)),
}
KEEP: dict[str, tuple[Grant, Occasion, GrantFacts]] = {
    "all of it was asked for": (grant(), NEXT_POD, following(ALL_ASKED)),
    "the same pod goes on": (
        grant(HALF),
        NEXT_POD,
        following(OWN_ADMISSION, open_("adm-2", OWN)),
    ),
    "no pod is known": (grant(HALF), NEXT_POD, following(OWN_ADMISSION, open_("adm-2"))),
    "it runs already": (confirmed(source=HALF), NEXT_POD, following(OWN_ADMISSION)),
    "it is of another admission": (grant(HALF), NEXT_POD, following(open_("adm-0", OWN))),
    "the pod that asks": (grant(), CONTESTED, during(ENDED, admission=OWN_ADMISSION)),
    "confirmed, and it lingers": (confirmed(), CONTESTED, during(ENDED, lingering=RUNS)),
    "its pod runs": (confirmed(), CONTESTED, during(OWN)),
    "half, of the pod that asks": (grant(HALF), NO_ROOM, during(OWN, admission=OWN_ADMISSION)),
    "evidence has no halves": (grant(EvidenceSource("adm")), NO_ROOM, during(OWN)),
    "a living pod has it": (grant(), NO_ROOM, during(OWN, checkpoint=(CORES,))),
    "the checkpoint cannot be read": (grant(), NO_ROOM, during(OWN)),
    "its pod was never known": (grant(candidate=None), NO_ROOM, during(OWN, checkpoint=())),
    "ended, and it runs": (confirmed(), NO_ROOM, during(ENDED, running=RUNS)),
    "ended, and the runtime is silent": (confirmed(), NO_ROOM, during(ENDED, running=None)),
    "gpu-manager's": (confirmed(source=INHERITED), NO_ROOM, during()),
    "put back, and a new pod asks": (
        confirmed(),
        NO_ROOM,
        during(OWN, OTHER, admission=open_("adm-2", OTHER, sizes={VCORE: 30})),
    ),
    "put back, and it runs": (
        confirmed(),
        NO_ROOM,
        during(OWN, admission=PUT_BACK, running=RUNS),
    ),
    "put back, unseen": (
        confirmed(),
        NO_ROOM,
        during(OWN, admission=replace(PUT_BACK, viewed=False)),
    ),
    "put back, with other amounts": (
        confirmed(),
        NO_ROOM,
        during(OWN, admission=replace(PUT_BACK, sizes={VCORE: 31})),
    ),
    "its GPU goes over, and it runs": (confirmed(), MOVE, GrantFacts((OWN,))),
    "its GPU goes over, half": (grant(HALF), MOVE, GrantFacts((OWN,))),
    "some container has its memory": (grant(), PASS, GrantFacts((OWN,), (MEMORY,))),
    "other cores, unknown what runs": (confirmed(), PASS, unlike("c-9", running=None)),
    "the checkpoint has it": (confirmed(), PASS, GrantFacts(None, (CORES,))),
    "nothing can be read": (confirmed(), PASS, GrantFacts(None, None)),
    "another pod's container has it": (
        grant(),
        PASS,
        GrantFacts((OTHER,), (given(VCORE, "c-1", uid=OTHER.uid),)),
    ),
}


@pytest.mark.parametrize("case", OVER)
def test_a_grant_is_over(case: str) -> None:
    one, occasion, facts = OVER[case]

    assert verdict(one, occasion, facts).outcome is GrantOutcome.OVER
    assert ended_grants([one], occasion, facts) == {one.id}


@pytest.mark.parametrize("case", SUSPECT)
def test_a_grant_is_suspect(case: str) -> None:
    one, occasion, facts = SUSPECT[case]

    assert verdict(one, occasion, facts).outcome is GrantOutcome.SUSPECT
    assert ended_grants([one], occasion, facts) == set()


@pytest.mark.parametrize("case", KEEP)
def test_a_grant_is_kept(case: str) -> None:
    one, occasion, facts = KEEP[case]

    assert verdict(one, occasion, facts).outcome is GrantOutcome.KEEP
    assert ended_grants([one], occasion, facts) == set()


def test_every_row_decides_one_of_the_cases() -> None:
    cases = [*OVER.values(), *SUSPECT.values(), *KEEP.values()]

    decided = {verdict(*case).reason for case in cases}

    assert {row.reason for row in ROWS} <= decided
