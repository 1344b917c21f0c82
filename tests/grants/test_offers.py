"""Which interface offers which GPU, as tables of single steps. GPUs are named by a letter."""

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.offers import (
    GpuOffer,
    GpuUses,
    first_offers,
    moved,
    offered_by,
    wanted,
)
from gpumanager.names import CLAIMS, DEVICE_PLUGINS

A, B, C = GpuUUID("a"), GpuUUID("b"), GpuUUID("c")
PLUGINS, CLAIMED = GpuOffer(DEVICE_PLUGINS), GpuOffer(CLAIMS)
IN_USE = GpuUses(devices=frozenset({A}), claims=frozenset({A}))
FREE = GpuUses()
NOW, QUIET = 100.0, 5.0


def leaving(interface: str, since: float | None, *, withdrawn: bool = True) -> GpuOffer:
    return GpuOffer(interface, leaving=True, withdrawn=withdrawn, since=since)


STEPS = [
    ("it stays", PLUGINS, DEVICE_PLUGINS, FREE, PLUGINS),
    ("it stays after all", leaving(CLAIMS, 99.0), CLAIMS, FREE, CLAIMED),
    ("a slice is withdrawn at once", CLAIMED, DEVICE_PLUGINS, IN_USE, leaving(CLAIMS, NOW)),
    (
        "schedulers learn of device IDs later",
        *(PLUGINS, CLAIMS, FREE, leaving(DEVICE_PLUGINS, NOW, withdrawn=False)),
    ),
    ("a pod that wants IDs arrives", PLUGINS, CLAIMS, GpuUses(arriving=True), PLUGINS),
    (
        "a slice is withdrawn while a pod that wants IDs arrives",
        *(CLAIMED, DEVICE_PLUGINS, GpuUses(arriving=True), leaving(CLAIMS, NOW)),
    ),
    (
        "schedulers are learning",
        leaving(DEVICE_PLUGINS, NOW - QUIET + 1, withdrawn=False),
        CLAIMS,
        FREE,
        leaving(DEVICE_PLUGINS, NOW - QUIET + 1, withdrawn=False),
    ),
    (
        "schedulers have learnt",
        leaving(DEVICE_PLUGINS, NOW - QUIET, withdrawn=False),
        *(CLAIMS, FREE, leaving(DEVICE_PLUGINS, None)),
    ),
    ("it is in use", leaving(CLAIMS, 1.0), DEVICE_PLUGINS, IN_USE, leaving(CLAIMS, None)),
    ("it is free", leaving(CLAIMS, None), DEVICE_PLUGINS, FREE, leaving(CLAIMS, NOW)),
    ("it is free for a moment", leaving(CLAIMS, 96.0), DEVICE_PLUGINS, FREE, leaving(CLAIMS, 96.0)),
    ("it is free for long", leaving(CLAIMS, 95.0), DEVICE_PLUGINS, FREE, PLUGINS),
]


def test_a_gpu_goes_over_step_by_step() -> None:
    found = {
        what: moved({A: before}, {A: target}, uses, NOW, QUIET)
        for what, before, target, uses, _ in STEPS
    }

    assert found == {what: {A: after} for what, _, _, _, after in STEPS}


def uses(
    devices: str = "",
    claims: str = "",
    allocated: str = "",
    cores: dict[GpuUUID, int] | None = None,
) -> GpuUses:
    named = (frozenset(map(GpuUUID, one)) for one in (devices, claims, allocated))
    devices_, claims_, allocated_ = named
    return GpuUses(devices_, claims_, cores, allocated_)


LEAVING_PLUGINS, LEAVING_CLAIMS = leaving(DEVICE_PLUGINS, 1.0), leaving(CLAIMS, 1.0)
CHOICES = [
    ("all stay", [PLUGINS, CLAIMED, PLUGINS], uses(), None, "b"),
    ("none", [PLUGINS, CLAIMED, PLUGINS], uses(), 0, ""),
    ("all", [PLUGINS, CLAIMED, PLUGINS], uses(), 3, "abc"),
    ("one that claims have", [PLUGINS, CLAIMED, PLUGINS], uses(), 1, "b"),
    ("one that claims use", [CLAIMED, CLAIMED, PLUGINS], uses(claims="b"), 1, "b"),
    ("one that claims use most", [CLAIMED] * 3, uses(claims="abc", cores={B: 50, A: 20}), 1, "b"),
    ("one that does not leave claims", [LEAVING_CLAIMS, CLAIMED, PLUGINS], uses(), 1, "b"),
    ("one that is unused", [PLUGINS] * 3, uses(devices="ac"), 1, "b"),
    (
        "one of which least is used",
        [PLUGINS] * 3,
        uses(devices="abc", cores={A: 50, B: 20, C: 30}),
        *(1, "b"),
    ),
    ("one that goes already", [PLUGINS, LEAVING_PLUGINS, PLUGINS], uses(), 1, "b"),
    ("an allocated one too", [PLUGINS, CLAIMED, PLUGINS], uses(allocated="cx"), 1, "bc"),
    (
        "not one that goes to device plugins",
        [PLUGINS, CLAIMED, PLUGINS],
        uses(allocated="b"),
        0,
        "",
    ),
]


def test_claims_get_as_many_gpus_as_asked_and_of_these_the_ones_that_cost_least() -> None:
    found = {}
    for what, before, used, count, _ in CHOICES:
        target = wanted(dict(zip((A, B, C), before, strict=True)), used, count)
        found[what] = "".join(gpu for gpu, interface in target.items() if interface == CLAIMS)

    assert found == {what: chosen for what, _, _, _, chosen in CHOICES}


@pytest.mark.parametrize("other", [DEVICE_PLUGINS, CLAIMS])
def test_an_agent_that_starts_offers_a_gpu_where_it_is_in_use_else_as_written(other: str) -> None:
    used = uses(devices="ac", claims="bc")

    found = first_offers([A, B, C, GpuUUID("d"), GpuUUID("e")], {A, C, GpuUUID("d")}, used, other)

    assert found == {
        A: PLUGINS,
        B: CLAIMED,
        C: CLAIMED,
        GpuUUID("d"): CLAIMED,
        GpuUUID("e"): GpuOffer(other),
    }


def test_a_gpu_that_leaves_is_offered_by_its_interface_still() -> None:
    offers = {A: PLUGINS, B: LEAVING_CLAIMS, C: LEAVING_PLUGINS}

    assert offered_by(offers, CLAIMS) == {B}
    assert offered_by(offers, DEVICE_PLUGINS) == {A, C}
