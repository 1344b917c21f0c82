"""The simulated kubelets keep the contract about claims that real ones are held to."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.sim.kubelet.versions import KUBELET_1_36, KUBELET_1_37
from tests.contracts.dra.dra_cases import *  # noqa: F403 - the cases are the point
from tests.contracts.dra.simulated_claims import SimulatedClaims


@pytest.fixture(params=[KUBELET_1_36, KUBELET_1_37], ids=lambda version: version.number)
async def claims_kubelet(request: pytest.FixtureRequest) -> AsyncIterator[SimulatedClaims]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    kubelet = SimulatedClaims(base, request.param)
    await kubelet.node.start()
    yield kubelet
    await kubelet.stop()
    shutil.rmtree(base)
