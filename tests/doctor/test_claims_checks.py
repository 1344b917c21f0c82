"""A node that serves claims: what is wrong is said once, with what to do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli.support.claim_inputs import denied_rights
from gpumanager.doctor.claim_checks import CLAIM_CHECKS
from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import (
    ClaimObjects,
    Finding,
    ListeningSocket,
    ObservedClaims,
    Verdict,
)
from gpumanager.dra.slice import differences
from gpumanager.kube.errors import ApiRefused
from tests.sim.claims.claim_objects import gpu

OBJECTS = ClaimObjects(
    device_class=True,
    denied=(),
    devices=2,
    slice_differences=(),
    claims={"u1": "team/a", "other": "web/b"},
    allocated={"u1": "team/a"},
)
WELL = ObservedClaims(
    registry=Path("/plugins_registry"),
    socket=ListeningSocket.LISTENS,
    ready="ok",
    cdi_obstacle="",
    cdi_directory=Path("/var/run/cdi"),
    cdi_files=frozenset({"u1"}),
    prepared={"u1": "team/a"},
    objects=OBJECTS,
)


def changed(**parts: Any) -> ObservedClaims:
    """The well node with these fields changed, of it or of its objects."""
    objects = {name: value for name, value in parts.items() if hasattr(OBJECTS, name)}
    view = {name: value for name, value in parts.items() if hasattr(WELL, name)}
    return replace(WELL, **({"objects": replace(OBJECTS, **objects)} | view))


def not_well(view: ObservedClaims) -> list[Finding]:
    return [one for one in findings(view) if one.verdict is not Verdict.WELL]


def findings(view: ObservedClaims) -> list[Finding]:
    return [one for check in CLAIM_CHECKS for one in check(view)]


def test_a_node_that_has_everything_is_well_and_each_part_has_a_row() -> None:
    assert not_well(WELL) == []
    assert [one.part for one in findings(WELL)] == [
        *("DRA plugin", "CDI support", "claims API", "DeviceClass", "permissions", "ResourceSlice"),
        *("claims", "CDI files"),
    ]


OLD = "containerd 1.6.20 does not inject CDI devices: Use containerd 2.0"
REFUSED = Unseen("answered 503: not registered with the kubelet: gpu.tencent.com (no such version)")
WRONG: dict[str, tuple[dict[str, Any], str, str, Verdict]] = {
    "no driver": ({"socket": ListeningSocket.ABSENT}, "DRA plugin", "plugins_registry",
                  Verdict.WRONG),
    "a driver that the kubelet refuses": ({"ready": REFUSED}, "DRA plugin", "log", Verdict.WRONG),
    "an agent that is silent": ({"ready": Unseen("refused")}, "DRA plugin", "log", Verdict.NOTE),
    "a runtime without CDI": ({"cdi_obstacle": OLD}, "CDI support", "containerd 2.0",
                              Verdict.WRONG),
    "no runtime": ({"cdi_obstacle": Unseen("none: no")}, "CDI support", "start", Verdict.WRONG),
    "no API server": ({"objects": Unseen("no --kubeconfig")}, "claims API", "1.34", Verdict.WRONG),
    "no class": ({"device_class": False}, "DeviceClass", "chart", Verdict.WRONG),
    "a class that may not be read": ({"device_class": Unseen("403")}, "DeviceClass", "kubectl",
                                     Verdict.NOTE),
    "no rights": ({"denied": ("patch resourceslices",)}, "permissions", "account", Verdict.WRONG),
    "rights that nobody tells": ({"denied": Unseen("404")}, "permissions", "can-i", Verdict.NOTE),
    "no slice": ({"slice_differences": None}, "ResourceSlice", "log", Verdict.WRONG),
    "another slice": ({"slice_differences": ("gpu-1 is missing",)}, "ResourceSlice", "DRAConsum",
                      Verdict.NOTE),
    "a claim that is gone": ({"claims": {}}, "claims", "kubelet", Verdict.NOTE),
    "a claim that waits": ({"allocated": {"u1": "team/a", "u2": "team/b"}}, "claims", "explain",
                           Verdict.NOTE),
    "a file that is missing": ({"cdi_files": frozenset()}, "CDI files", "writes the files again",
                               Verdict.WRONG),
    "a file without a grant": ({"cdi_files": frozenset({"u1", "u9"})}, "CDI files", "removes",
                               Verdict.NOTE),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_well_is_said_once_with_what_to_do(case: str) -> None:
    fields, part, advice, verdict = WRONG[case]

    (finding,) = not_well(changed(**fields))

    assert (finding.part, finding.verdict) == (part, verdict)
    assert advice in finding.advice


def test_a_long_list_of_claims_is_cut() -> None:
    many = {f"u{number}": f"team/{number}" for number in range(1, 7)}

    (finding,) = not_well(changed(allocated=many))

    assert finding.found.endswith("team/2, team/3, team/4 and 2 more")


def test_published_devices_are_compared_without_order_and_taints() -> None:
    first, second = gpu(0), gpu(1)
    tainted = {**first, "taints": [{"key": "k", "effect": "NoSchedule"}]}
    without_gate = {key: second[key] for key in second if key != "allowMultipleAllocations"}

    assert differences([second, tainted], [first, second]) == ()
    assert differences([without_gate, gpu(2)], [first, second]) == (
        "gpu-0 is missing",
        "gpu-2 is no GPU of this node",
        "gpu-1: allowMultipleAllocations differs",
    )


class Reviewer:
    """An API server that is asked what an account may do."""

    def __init__(self, denied: set[str]) -> None:
        self._denied = denied

    async def create(self, _path: str, review: dict[str, Any]) -> dict[str, Any]:
        if not self._denied:
            raise ApiRefused("POST", 404, "NotFound", "no such thing")
        asked = review["spec"]["resourceAttributes"]
        return {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self._denied}}


async def test_rights_are_asked_one_by_one_and_an_old_server_is_no_finding() -> None:
    denied = {"create resourceslices", "watch pods"}

    assert set(await denied_rights(Reviewer(denied))) == denied  # type: ignore[arg-type]
    assert isinstance(await denied_rights(Reviewer(set())), Unseen)  # type: ignore[arg-type]
