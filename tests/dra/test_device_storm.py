"""A storm of both kinds of pods while GPUs move: no GPU is ever given twice.

GPUMANAGER_STORM_PODS: pods of each kind, 6 by default. GPUMANAGER_STORM_KILLS: agents killed.
"""

import os

import pytest

from tests.dra.device_storm import DeviceStorm, said
from tests.dra.node_of_claims import NodeOfClaims

pytestmark = pytest.mark.namespaces
PODS = int(os.environ.get("GPUMANAGER_STORM_PODS", "6"))
ENOUGH = 100
"""Pods of which a part may be judged: on a slow machine schedulers learn late more often."""
KILLS = int(os.environ.get("GPUMANAGER_STORM_KILLS", "0"))
FLAGS = {
    "interface": "both",
    "claims-gpus": 2,
    "gpu-move-delay": "1s",
    "allocation-check-period": "1s",
}


async def test_a_storm_of_both_kinds_of_pods_gives_no_gpu_twice() -> None:
    async with NodeOfClaims(flags=FLAGS) as node:
        figures = await DeviceStorm(node, PODS, seed=20, kills=KILLS).run()
        print(said(figures), node.node.agent.last_words())  # noqa: T201

    assert figures.faults == []
    assert figures.failed == [] or KILLS  # a container that starts while its agent is away
    assert (figures.devices, figures.claims) == (PODS, PODS)
    if PODS >= ENOUGH:
        assert len(figures.tried_twice) <= PODS // 100
    assert figures.moves > 0
