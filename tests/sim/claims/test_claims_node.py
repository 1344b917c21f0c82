"""Pods with claims on a simulated node, with the real agent: from YAML to the end of the pod."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumanager.sim.claims.node import ClaimsNode
from gpumanager.sim.container.process import own_environment
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import read_manifest
from gpumanager.units import GIB

EXAMPLES = Path(__file__).parents[3] / "examples" / "claims"
pytestmark = pytest.mark.namespaces
SHARE_POINTS = 5.0
"""How far above its promise a share may be."""

QUICK = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: whole}
spec:
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.tencent.com}}]}}
"""


def pod(name: str, template: str = "whole") -> str:
    return f"""\
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: {template}}}]
  containers:
    - name: main
      command: [cuda-play, query]
      resources: {{claims: [{{name: gpu, request: gpu}}]}}
"""


def test_every_example_gets_what_it_asks_for_and_no_more() -> None:
    order = [EXAMPLES / f"{name}.yaml" for name in ("one-share", "first-available")]
    files = [*order, *sorted(set(EXAMPLES.glob("*.yaml")) - set(order))]
    command = [sys.executable, "-m", "gpumanager", "simulate", "--machine", "t4x4", "--json"]

    ran = subprocess.run(
        [*command, *map(str, files)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env=own_environment(),
    )

    assert ran.returncode == 0, ran.stderr
    rows = {
        f"{one['pod'][8:]}/{one['container']}": one for one in json.loads(ran.stdout)["containers"]
    }
    shares = {name: (row["cores"], row["memory_limit_bytes"] // GIB) for name, row in rows.items()}
    assert shares == {
        "one-share/main": (30, 2),
        "first-available/main": (30, 2),
        "two-containers-one-claim/first": (40, 4),
        "two-containers-one-claim/second": (40, 4),
        "two-gpus/small": (20, 1),
        "two-gpus/large": (60, 4),
        "watch-all/main": (0, 0),
        "whole-gpu-claim/main": (100, 15),
        "whole-gpus-by-resource/check": (100, 15),
        "whole-gpus-by-resource/first": (100, 15),
        "whole-gpus-by-resource/second": (200, 30),
    }
    assert {name: row["exit_code"] for name, row in rows.items()} == dict.fromkeys(rows, 0)
    gpus = {name: row["gpus"] for name, row in rows.items()}
    assert gpus.pop("watch-all/main")
    by_resource = [gpus.pop(f"whole-gpus-by-resource/{name}") for name in ("check", "first")]
    assert by_resource[0] == by_resource[1]
    assert not {*by_resource[1]} & {*gpus.pop("whole-gpus-by-resource/second")}
    assert all(len(found) == 1 for found in gpus.values())
    assert gpus["two-containers-one-claim/first"] == gpus["two-containers-one-claim/second"]
    assert gpus["two-gpus/small"] != gpus["two-gpus/large"]
    assert all(
        gpus["whole-gpu-claim/main"] != found for name, found in gpus.items() if "whole" not in name
    )
    del rows["watch-all/main"]  # it has no limit
    assert all(row["memory_peak_bytes"] <= row["memory_limit_bytes"] for row in rows.values())
    del rows["whole-gpus-by-resource/check"]  # it launches nothing
    for row in rows.values():
        assert row["share_achieved_percent"] <= row["cores"] + SHARE_POINTS
    budget = [rows[f"two-containers-one-claim/{name}"] for name in ("first", "second")]
    assert sum(one["share_achieved_percent"] for one in budget) <= 40 + SHARE_POINTS


async def test_pods_without_room_wait_for_one_another_and_leave_nothing(tmp_path: Path) -> None:
    """Except one that never fits, which is refused with the scheduler's words."""
    waiting = "".join(pod(f"p{index}") for index in range(3))
    (tmp_path / "pods.yaml").write_text(QUICK + pod("late", "none") + waiting)

    async with ClaimsNode(load_machine("single")) as node:
        late, *results = await node.run(read_manifest([tmp_path / "pods.yaml"]))
        objects = node.server.objects

        assert late.refused == 'pod has no resource claim for "gpu" yet'
        assert [one.exit_code for one in results] == [0, 0, 0]
        assert list(objects.list("resourceclaims")) == []
        assert list(node.node.disk.virtual.glob("alloc/*")) == []
        (published,) = objects.list("resourceslices")
        assert len(published["spec"]["devices"]) == 1


BY_TWO_LINES = """\
---
apiVersion: v1
kind: Pod
metadata: {name: lines}
spec:
  containers:
    - name: main
      command: [cuda-play, query]
      resources: {limits: {tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 4}}
"""


def simulate(tmp_path: Path, machine: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "pods.yaml").write_text(QUICK + pod("claims") + BY_TWO_LINES)
    command = [sys.executable, "-m", "gpumanager", "simulate", "--json", "--machine", machine]
    return subprocess.run(
        [*command, str(tmp_path / "pods.yaml")],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env=own_environment(),
    )


def test_pods_of_both_kinds_have_gpus_of_their_own(tmp_path: Path) -> None:
    ran = simulate(tmp_path, "t4x4")

    assert ran.returncode == 0, ran.stderr
    claims, lines = json.loads(ran.stdout)["containers"]
    assert (claims["cores"], lines["cores"]) == (100, 30)
    assert claims["exit_code"] == lines["exit_code"] == 0
    assert claims["gpus"] != lines["gpus"]


def test_one_gpu_is_not_offered_both_ways(tmp_path: Path) -> None:
    ran = simulate(tmp_path, "single")

    assert ran.returncode == 2
    assert "a GPU is offered one way at a time" in ran.stderr
