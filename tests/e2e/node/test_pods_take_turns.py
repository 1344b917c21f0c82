"""Containers of real pods that take turns."""

import re
from functools import partial
from typing import Any, Final

import pytest

from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_pods import RealPods, container, pod
from tests.e2e.node.test_node_metrics import metric
from vcuda_shim._shim import ffi, lib

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

WORDS: Final = (
    "test -p /etc/vcuda/turns/ring && ! touch /etc/vcuda/turns/words && "
    "cuda-play launch --kernel 2ms --seconds 4; echo ended $?; sleep 600"
)
SHARES: Final = {"third": 30, "more": 60}
SHARE_POINTS: Final = 5


def test_two_containers_of_a_gpu_take_turns(agent: RealAgent, pods: RealPods) -> None:
    uid = pods.create(pod("turned", *(container(who, WORDS, it, 4) for who, it in SHARES.items())))
    for who, share in SHARES.items():
        log = pods.printed("turned", who, "ended")

        assert "ended 0" in log
        (got,) = re.findall(r"a share of ([0-9.]+) %", log)
        assert 1 < float(got) < share + SHARE_POINTS, log
    used = partial(metric, "gpumanager_container_gpu_seconds_total", pod="turned")
    wait_for(lambda: [one > 0.1 for one in used()] == [True, True], "metrics tell what they used")
    words: Any = ffi.new("struct vcuda_turns *")
    for grant in agent.promised_to(uid):
        ffi.buffer(words)[:] = (agent.disk.turns / grant.id / "words").read_bytes()
        assert words.of[0].turn // lib.VCUDA_TURN_STEP > SHARE_POINTS * 2
