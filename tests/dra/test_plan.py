"""What a claim becomes, as tables: its shares, its grants, and the reasons to refuse it."""

import itertools
from collections.abc import Mapping, Sequence

import pytest

from gpumanager.dra.plan import PreparedNode, plan
from gpumanager.grants.grant import Claimant, Grant, State
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import Refused
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.claims import (
    ALL,
    AllocatedDevice,
    ClaimUse,
    ClaimUser,
    PodClaims,
    ResourceClaim,
    device_name,
)
from gpumanager.kube.vcuda_config import VcudaConfig
from gpumanager.placement.values import Evaluator
from tests.deviceplugin.admission.admission_node import BLOCKS, gpus

GPUS = gpus(3).gpus
NODE = PreparedNode("n1", Ledger(gpus(3)))
SHARE, WHOLE, ADMIN = (30, 4), (None, None), (0, 0)
A, B, C = "a", "b", "c"


def device(
    gpu: int, amounts: tuple[int | None, int | None] = SHARE, request: str = A, pool: str = "n1"
) -> AllocatedDevice:
    cores, blocks = amounts
    admin = amounts == ADMIN
    name = device_name(GPUS[gpu].uuid)
    return AllocatedDevice(request, name, pool, None, cores, blocks, admin=admin)


def claim(
    *devices: AllocatedDevice, name: str = "claim", ceilings: Mapping[str, int] | None = None
) -> ResourceClaim:
    configs = (
        (((request,), VcudaConfig(ceiling))) for request, ceiling in (ceilings or {}).items()
    )
    users = (ClaimUser(PodUID("uid-p"), "p"),)
    return ResourceClaim(f"uid-{name}", "default", name, devices, tuple(configs), users)


def pod(
    *uses: tuple[str, str] | tuple[str, str, str], graphics: bool = True, shares: str = ""
) -> PodClaims:
    """uses: container and request, and the claim where it is another. shares: the container that
    also asks for GPUs by device plugins."""
    rows = (ClaimUse(use[0], use[2] if len(use) > 2 else "claim", use[1], graphics) for use in uses)
    return PodClaims(PodUID("uid-p"), "default", "p", tuple(rows), shares=(shares,))


def planned(
    asked: ResourceClaim, *pods: PodClaims, node: PreparedNode = NODE
) -> tuple[Grant, ...] | Refused:
    names = (AllocationID(f"n{number}") for number in itertools.count())
    return plan(node, asked, pods or (pod(("main", ALL)),), 7.0, names.__next__)


def grants(asked: ResourceClaim, *pods: PodClaims) -> tuple[Grant, ...]:
    answer = planned(asked, *pods)
    assert not isinstance(answer, Refused), answer
    return answer


BY_SCHEDULER = "allocated by the scheduler"
SHARES = [
    ("a share", [device(0)], {0: (30, 4)}, "shim", Evaluator.SHARE, BY_SCHEDULER),
    (
        "a GPU",
        [device(0, WHOLE)],
        {0: (100, BLOCKS)},
        "passthrough",
        Evaluator.FRAGMENT,
        BY_SCHEDULER,
    ),
    (
        "two GPUs",
        [device(0, WHOLE), device(1, WHOLE)],
        {0: (100, BLOCKS), 1: (100, BLOCKS)},
        "passthrough",
        Evaluator.LINK,
        BY_SCHEDULER,
    ),
    (
        "a GPU beside a share",
        [device(0, WHOLE), device(1)],
        {0: (100, BLOCKS), 1: (30, 4)},
        "shim",
        Evaluator.LINK,
        BY_SCHEDULER,
    ),
    (
        "two shares of a GPU",
        [device(0), device(0)],
        {0: (60, 8)},
        "shim",
        Evaluator.SHARE,
        BY_SCHEDULER,
    ),
    (
        "all memory",
        [device(0, (30, None))],
        {0: (30, BLOCKS)},
        "shim",
        Evaluator.SHARE,
        BY_SCHEDULER,
    ),
    (
        "all cores",
        [device(0, (None, 4))],
        {0: (100, 4)},
        "passthrough",
        Evaluator.FRAGMENT,
        BY_SCHEDULER,
    ),
    (
        "admin access",
        [device(0, ADMIN), device(1, ADMIN)],
        {0: (0, 0), 1: (0, 0)},
        "passthrough",
        Evaluator.SHARE,
        "monitoring only: holds no share",
    ),
]


def test_the_devices_of_a_claim_say_what_its_grant_holds() -> None:
    wrong = []
    for what, devices, shares, isolation, evaluator, why in SHARES:
        (grant,) = grants(claim(*devices))
        held = {GPUS.index(gpu): grant.shares[gpu.uuid] for gpu in GPUS if gpu.uuid in grant.shares}
        found = {index: (share.cores, share.blocks) for index, share in held.items()}
        answer = (found, grant.isolation, grant.evaluator, grant.why)
        if answer != (shares, isolation, evaluator, why):
            wrong.append((what, answer))

    assert wrong == []


def test_a_claim_of_two_kinds_of_requests_gets_a_grant_that_names_its_first_pod() -> None:
    (grant,) = grants(claim(device(0), device(1, request=B)))

    assert grant.pod == Claimant(PodUID("uid-p"), "default", "p", "claim/a,b")
    assert (grant.state, grant.time) == (State.CONFIRMED, 7.0)


GROUPS: list[tuple[str, list[PodClaims], list[str]]] = [
    ("a container has all", [pod(("main", ALL))], ["a,b"]),
    ("containers have one each", [pod(("one", A), ("two", B))], [A, B]),
    ("two containers share one", [pod(("one", A), ("two", A), ("two", B), ("one", B))], ["a,b"]),
    ("a request that nobody uses is alone", [pod(("one", A))], [A, B]),
    ("requests that nobody uses are alone", [pod()], [A, B]),
    ("uses of another claim of that name count nowhere", [pod(("one", ALL, "other"))], [A, B]),
]


def test_requests_that_the_same_containers_use_become_one_grant() -> None:
    wrong = []
    for what, pods, expected in GROUPS:
        answer = planned(claim(device(0), device(1, request=B)), *pods)
        found = (
            [] if isinstance(answer, Refused) else [one.pod.container for one in answer if one.pod]
        )
        if found != [f"claim/{names}" for names in expected]:
            wrong.append((what, answer))

    assert wrong == []


def test_admin_access_is_a_grant_of_its_own() -> None:
    found = grants(claim(device(0, ADMIN), device(0, request=B)), pod(("one", A), ("two", B)))

    assert [one.counts for one in found] == [False, True]


GRAPHICS: list[tuple[str, list[PodClaims], bool]] = [
    ("nobody is known", [pod()], True),
    ("its container may", [pod(("main", A))], True),
    ("its container may not", [pod(("main", A), graphics=False)], False),
    ("one of two may", [pod(("one", A), graphics=False), pod(("two", A))], True),
]


def test_a_grant_has_graphics_unless_all_its_containers_go_without() -> None:
    found = {what: grants(claim(device(0)), *pods)[0].graphics for what, pods, _ in GRAPHICS}

    assert found == {what: graphics for what, _, graphics in GRAPHICS}


@pytest.mark.parametrize(
    ("devices", "ceilings", "ceiling"),
    [
        ([device(0)], {}, None),
        ([device(0)], {A: 60}, 60),
        ([device(0), device(1, request=B)], {A: 60, B: 60}, 60),
        ([device(0, WHOLE), device(1, request=B)], {A: 60, B: 80}, 80),
        ([device(0, (100, 4)), device(1, request=B)], {A: 60, B: 80}, 80),
        ([device(0, WHOLE)], {A: 60}, None),
        ([device(0), device(1, request=B)], {A: 60, B: 80}, "invalid"),
        ([device(0), device(1, request=B)], {A: 60}, "invalid"),
    ],
)
def test_a_grant_has_the_burst_ceiling_that_all_its_shares_ask_for(
    devices: list[AllocatedDevice], ceilings: dict[str, int], ceiling: int | str | None
) -> None:
    answer = planned(claim(*devices, ceilings=ceilings))

    assert (answer.reason if isinstance(answer, Refused) else answer[0].ceiling) == ceiling


HOLDER = grants(claim(device(0, (80, 4)), name="holder"))
LOOKER = grants(claim(device(0, ADMIN), name="looker"))
NAMED = {("default", "other"): (A,), ("elsewhere", "theirs"): (A,)}
OTHERS = {GPUS[0].uuid: "device plugins have it"}
"""Everything that a case does not name is as for a claim that is granted."""
CASES: list[tuple[str, Sequence[AllocatedDevice], list[PodClaims], PreparedNode, str]] = [
    ("nothing is allocated", [], [pod()], NODE, "not-allocated"),
    ("the pool of another node", [device(0, pool="n2")], [pod()], NODE, "other-node"),
    ("a GPU that is gone", [device(2)], [pod()], PreparedNode("n1", Ledger(gpus(2))), "gpu-gone"),
    (
        "a GPU of device plugins",
        [device(0)],
        [pod()],
        PreparedNode("n1", Ledger(gpus(3), closed=OTHERS)),
        "other-interface",
    ),
    (
        "a look at a GPU of device plugins",
        [device(0, ADMIN)],
        [pod()],
        PreparedNode("n1", Ledger(gpus(3), closed=OTHERS)),
        "",
    ),
    (
        "a GPU beside one of device plugins",
        [device(1)],
        [pod()],
        PreparedNode("n1", Ledger(gpus(3), closed=OTHERS)),
        "",
    ),
    (
        "a share of which too few cores are free",
        [device(0)],
        [pod()],
        PreparedNode("n1", Ledger(gpus(3)), HOLDER),
        "not-free",
    ),
    (
        "a share of another GPU",
        [device(1)],
        [pod()],
        PreparedNode("n1", Ledger(gpus(3)), HOLDER),
        "",
    ),
    (
        "a look at a GPU that is taken",
        [device(0, ADMIN)],
        [pod()],
        PreparedNode("n1", Ledger(gpus(3)), HOLDER),
        "",
    ),
    (
        "a GPU at which somebody looks",
        [device(0, WHOLE)],
        [pod()],
        PreparedNode("n1", Ledger(gpus(3)), LOOKER),
        "",
    ),
    ("all of a GPU in two halves", [device(0, (50, 4)), device(0, (50, 4))], [pod()], NODE, ""),
    (
        "more than a GPU in two halves",
        [device(0, (60, 4)), device(0, (60, 4))],
        [pod()],
        NODE,
        "not-free",
    ),
    (
        "two requests of a claim that do not fit together",
        [device(0, (60, 4)), device(0, (60, 4), B)],
        [pod(("one", A), ("two", B))],
        NODE,
        "not-free",
    ),
    (
        "a container with requests of two grants",
        [device(0), device(1, request=B)],
        [pod(("one", A), ("one", B), ("two", B))],
        NODE,
        "several-grants",
    ),
    (
        "a container with whole GPUs of two grants",
        [device(0, WHOLE), device(1, WHOLE, B)],
        [pod(("one", A), ("one", B), ("two", B))],
        NODE,
        "",
    ),
    (
        "a container with a whole GPU and a share of two grants",
        [device(0, WHOLE), device(1, SHARE, B)],
        [pod(("one", A), ("one", B), ("two", B))],
        NODE,
        "several-grants",
    ),
    (
        "a container that also looks, by another grant",
        [device(0, WHOLE), device(1, ADMIN, B)],
        [pod(("one", ALL), ("two", B))],
        NODE,
        "several-grants",
    ),
    (
        "containers with one of three requests each",
        [device(0), device(1, request=B), device(2, request=C)],
        [pod(("one", A), ("two", B), ("three", C))],
        NODE,
        "",
    ),
    (
        "a container with another claim too",
        [device(0)],
        [pod(("one", ALL), ("one", ALL, "other"))],
        PreparedNode("n1", Ledger(gpus(3)), claims=NAMED),
        "several-grants",
    ),
    (
        "a container with another claim, beside one with this",
        [device(0)],
        [pod(("one", ALL), ("two", ALL, "other"))],
        PreparedNode("n1", Ledger(gpus(3)), claims=NAMED),
        "",
    ),
    (
        "a container with a share by device plugins too",
        [device(0)],
        [pod(("one", ALL), shares="one")],
        NODE,
        "several-grants",
    ),
    (
        "a container beside one with a share by device plugins",
        [device(0)],
        [pod(("one", ALL), shares="two")],
        NODE,
        "",
    ),
    (
        "a container with a claim of another driver too",
        [device(0)],
        [pod(("one", ALL), ("one", ALL, "theirs"))],
        PreparedNode("n1", Ledger(gpus(3)), claims=NAMED),
        "",
    ),
]


def test_a_claim_that_cannot_be_served_is_refused_for_one_reason() -> None:
    wrong = []
    for what, devices, pods, node, reason in CASES:
        answer = planned(claim(*devices), *pods, node=node)
        if (answer.reason if isinstance(answer, Refused) else "") != reason:
            wrong.append((what, answer))

    assert wrong == []


def test_a_refusal_says_who_has_what_the_claim_asks_for() -> None:
    elsewhere = grants(claim(device(1), name="elsewhere"))
    live = (*LOOKER, *elsewhere, *HOLDER)

    answer = planned(claim(device(0)), node=PreparedNode("n1", Ledger(gpus(3)), live))

    assert isinstance(answer, Refused)
    assert answer.text.partition("yet: ")[2] == (
        "80 cores and 4 blocks by claim default/holder (request a)"
    )
