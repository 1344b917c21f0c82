"""A node that serves claims: what is wrong is said once, with what to do."""

from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli.support.claim_inputs import denied_rights
from gpumanager.doctor.checks import examine
from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import Finding, ListeningSocket, Verdict
from gpumanager.dra.slice import differences
from gpumanager.kube.errors import ApiRefused
from tests.sim.claims.claim_objects import gpu

WELL: dict[str, Any] = {
    "registry": Path("/plugins_registry"),
    "registration": ListeningSocket.LISTENS,
    "ready": "ok",
    "cdi_obstacle": "",
    "cdi_directory": Path("/var/run/cdi"),
    "cdi_files": ["u1"],
    "prepared": {"u1": "team/a"},
    "claims_api": "resource.k8s.io/v1",
    "device_class": True,
    "denied": (),
    "devices": 2,
    "slice_differences": (),
    "claims": {"u1": "team/a", "other": "web/b"},
    "allocated": {"u1": "team/a"},
}


def not_well(**inputs: Any) -> list[Finding]:
    """Of the well node with these inputs changed."""
    return [one for one in examine(WELL | inputs) if one.verdict is not Verdict.WELL]


def test_a_node_that_has_everything_is_well_and_each_part_has_a_row() -> None:
    assert not_well() == []
    assert [one.part for one in examine(WELL)] == [
        *("DRA plugin", "CDI support", "claims API", "DeviceClass", "permissions", "ResourceSlice"),
        *("claims", "CDI files"),
    ]


OLD = "containerd 1.6.20 does not inject CDI devices: Use containerd 2.0"
REFUSED = Unseen("answered 503: not registered with the kubelet: gpu.tencent.com (no such version)")
WRONG: dict[str, tuple[dict[str, Any], str, str, Verdict]] = {
    "no driver": ({"registration": ListeningSocket.ABSENT}, "DRA plugin", "plugins_registry",
                  Verdict.WRONG),
    "a driver that the kubelet refuses": ({"ready": REFUSED}, "DRA plugin", "log", Verdict.WRONG),
    "an agent that is silent": ({"ready": Unseen("refused")}, "DRA plugin", "log", Verdict.NOTE),
    "a runtime without CDI": ({"cdi_obstacle": OLD}, "CDI support", "containerd 2.0",
                              Verdict.WRONG),
    "no runtime": ({"cdi_obstacle": Unseen("none: no")}, "CDI support", "start", Verdict.WRONG),
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
    "a file that is missing": ({"cdi_files": ()}, "CDI files", "writes the files again",
                               Verdict.WRONG),
    "a file without a grant": ({"cdi_files": ["u1", "u9"]}, "CDI files", "removes",
                               Verdict.NOTE),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_well_is_said_once_with_what_to_do(case: str) -> None:
    fields, part, advice, verdict = WRONG[case]

    (finding,) = not_well(**fields)

    assert (finding.part, finding.verdict) == (part, verdict)
    assert advice in finding.advice
    assert [one.part for one in examine(WELL | fields)].count(part) == 1


def test_without_an_api_server_nothing_else_is_told_of_it() -> None:
    there = ("registry", "registration", "ready", "prepared", "cdi_files", "cdi_directory")
    inputs = {name: WELL[name] for name in there} | {"claims_api": Unseen("no --kubeconfig")}

    (finding,) = (one for one in examine(inputs) if one.verdict is not Verdict.WELL)

    assert (finding.part, finding.verdict) == ("claims API", Verdict.WRONG)
    assert "1.34" in finding.advice


def test_a_long_list_of_claims_is_cut() -> None:
    many = {f"u{number}": f"team/{number}" for number in range(1, 7)}

    (finding,) = not_well(allocated=many)

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
