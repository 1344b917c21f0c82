"""What follows from a grant's shares and its source, as tables."""

from collections.abc import Mapping

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import (
    Claimant,
    ClaimedDevice,
    ClaimSource,
    DevicePluginSource,
    Grant,
    LegacySource,
    Share,
    Source,
    shares_of,
)
from gpumanager.ids import AllocationID, PodUID

A, B = GpuUUID("a"), GpuUUID("b")
IDS = DevicePluginSource("admission", ("c-1",), ("m-1",))
LEGACY = LegacySource("admission", ("tencent.com/vcuda-core-1",), ())


def claimed(*requests: str, admin: bool = False) -> ClaimSource:
    devices = tuple(ClaimedDevice("gpu-1", request) for request in requests)
    return ClaimSource("uid", "default", "claim", devices, admin)


def grant(
    shares: Mapping[GpuUUID, Share] | None = None, source: Source = IDS, *, suspect: bool = False
) -> Grant:
    return Grant(AllocationID("n"), source, shares or {}, suspect=suspect)


AMOUNTS: list[tuple[str, dict[GpuUUID, Share], tuple[int, int, bool]]] = [
    ("no GPU that is known", {}, (0, 0, False)),
    ("a share", {A: Share(30, 4)}, (30, 4, False)),
    ("nearly a GPU", {A: Share(99, 4)}, (99, 4, False)),
    ("a GPU", {A: Share(100, 4)}, (100, 4, True)),
    ("a GPU beside a share", {A: Share(100, 4), B: Share(30, 8)}, (130, 8, True)),
]


def test_cores_are_summed_and_memory_is_that_of_each_gpu() -> None:
    found = {what: grant(shares) for what, shares, _ in AMOUNTS}

    assert {what: (one.cores, one.blocks, one.exclusive) for what, one in found.items()} == {
        what: amounts for what, _, amounts in AMOUNTS
    }


COUNTS = [
    ("device IDs", grant(), True),
    ("a claim", grant(source=claimed("gpu")), True),
    ("admin access", grant(source=claimed("gpu", admin=True)), False),
    ("suspect", grant(suspect=True), False),
    ("a suspect claim", grant(source=claimed("gpu"), suspect=True), False),
]


def test_a_grant_counts_unless_it_is_suspect_or_only_looks() -> None:
    assert {what: one.counts for what, one, _ in COUNTS} == {
        what: counts for what, _, counts in COUNTS
    }


def test_a_grant_has_the_device_ids_of_its_source_and_a_claim_has_none() -> None:
    assert grant().ids == IDS
    assert grant(source=claimed("gpu")).ids == DevicePluginSource("")
    assert grant(source=LEGACY).ids == LEGACY
    assert [grant(source=one).legacy for one in (IDS, LEGACY)] == [False, True]


def test_requests_of_a_claim_are_named_once_and_without_their_alternatives() -> None:
    source = claimed("gpu/t0", "other", "gpu/t1")

    assert source.requests == ("gpu", "other")
    assert str(source) == "claim default/claim (request gpu, other)"


def test_the_owner_is_the_confirmed_pod_or_else_the_expected_one() -> None:
    expected, confirmed = (
        Claimant(PodUID(uid), "default", uid, "main") for uid in ("expected", "confirmed")
    )
    owners = [
        Grant(AllocationID("n"), IDS, candidate=candidate, pod=pod).owner
        for candidate, pod in ((None, None), (expected, None), (expected, confirmed))
    ]

    assert owners == [None, "expected", "confirmed"]


def test_whole_gpus_have_all_cores_and_a_share_is_the_same_on_each() -> None:
    assert shares_of([A, B], 200, 4, exclusive=True) == {A: Share(100, 4), B: Share(100, 4)}
    assert shares_of([A, B], 30, 4, exclusive=False) == {A: Share(30, 4), B: Share(30, 4)}


def test_a_grant_of_which_nothing_else_is_known_counts_holds_and_may_have_graphics() -> None:
    found = Grant(AllocationID("n"), IDS)

    assert (found.counts, found.suspect, found.released, found.graphics) == (
        *(True, False, False, True),
    )
