"""The pod of `helm test`: it asks for what the webhook admits, and judges what a program sees."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.validate import validate
from tests.chart import helm_program

pytestmark = pytest.mark.skipif(helm_program.found() is None, reason=helm_program.MISSING)
SEEN = "CUDA 12.5, 1 device\ndevice 0: NVIDIA A100, GPU-0, {0}, 600 MiB free of {0}\n"


def pod(*values: str) -> dict[str, Any] | None:
    """What helm renders of it; None where there is none."""
    cluster = ("--kube-version", helm_program.KUBERNETES)
    words = [word for value in values for word in ("--set", value)]
    done = helm_program.helm("template", "gpu-manager", ".", *cluster, *words)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "Pod"]
    assert len(found) <= 1
    return found[0] if found else None


def test_its_pod_is_one_that_the_webhook_admits_for_the_chart_s_scheduler() -> None:
    made = pod()

    assert made is not None
    assert validate(made, AdmissionPolicy()).errors == ()
    assert made["spec"]["schedulerName"] == "gpu-scheduler"
    assert made["metadata"]["annotations"]["helm.sh/hook"] == "test"


@pytest.mark.parametrize(
    ("values", "there"),
    [
        (("agent.interface=claims",), False),
        (("agent.interface=claims", "webhook.claims=always"), True),
        (("agent.interface=both",), True),
    ],
)
def test_there_is_none_where_the_two_lines_have_nobody_who_serves_them(
    values: tuple[str, ...], *, there: bool
) -> None:
    assert (pod(*values) is not None) == there


@pytest.mark.parametrize(("memory", "status"), [("1 GiB", 0), ("40 GiB", 1), ("11 GiB", 1)])
def test_it_fails_where_a_program_sees_another_limit(
    memory: str, status: int, tmp_path: Path
) -> None:
    made = pod()
    assert made is not None
    (container,) = made["spec"]["containers"]
    program = tmp_path / "cuda-play"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{SEEN.format(memory)}'\n")
    program.chmod(0o755)
    script = container["args"][0].replace("/opt/gpu-manager/vcuda_shim/bin", str(tmp_path))

    done = subprocess.run(
        [*container["command"], script], check=False, capture_output=True, text=True, env=os.environ
    )

    assert done.returncode == status, done.stdout
    assert ("the limit holds" in done.stdout) == (status == 0)
