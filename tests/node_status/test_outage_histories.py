"""Any history of a node and its API server, which is away, forgets, refuses and cuts connections.

While it is away, nothing waits for it: what happens to pods is taken at once. In the end, when it
answers again, every pod that lives says which GPUs it has, and nobody's pod was written to.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gpumanager.grants.grant import Claimant, Grant
from gpumanager.ids import PodUID
from gpumanager.names import ANNOTATION_GPU_ASSIGNED, ANNOTATION_PREDICATE_GPU_INDEX
from gpumanager.node_status.service import Facts, NodeCluster
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.histories.history_loop import HistoryLoop
from tests.kube.api_world import pod_object
from tests.kube.kube_clients import client_of
from tests.node_status.grants import granted, two_gpus

NODE = "node"
ELSEWHERE = "elsewhere"
IDX_0 = ANNOTATION_PREDICATE_GPU_INDEX + "0"
REFUSALS = [(409, "Conflict"), (403, "Forbidden"), (429, "TooManyRequests"), (500, "InternalError")]
LONG = 1200.0
"""Seconds after which the longest pause of the agent is over, twice."""

places = st.integers(0, 9)
which = st.integers(0, 1)


class Outages(RuleBasedStateMachine):
    """pods: those that live, by name; grants: what the journal says of them, by UID."""

    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=HistoryLoop)
        self.pods: dict[str, str] = {}
        self.grants: dict[str, Grant] = {}
        self.number = 0
        self.away = False

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.server = SimulatedApiServer()
        self.run(self.server.start())
        for node in (NODE, ELSEWHERE):
            self.run(self.server.create("nodes", {"metadata": {"name": node}}))
        self.stranger = self.made("stranger", ELSEWHERE)
        self.start_agent()

    def start_agent(self) -> None:
        api, clock = (
            client_of(self.server),
            self.runner.get_loop().time,
        )
        self.member = NodeCluster(api, NODE, recycle=False, clock=clock)
        self.task = self.runner.get_loop().create_task(self.member.run(self.facts))

    def facts(self) -> Facts:
        return Facts(two_gpus(), tuple(self.grants.values()))

    def stop_agent(self) -> None:
        self.task.cancel()
        self.run(_ended(self.task))

    def made(self, name: str, node: str, **annotations: str) -> str:
        item = pod_object(name, node, annotations=annotations)
        return str(self.run(self.server.create("pods", item))["metadata"]["uid"])

    def pod(self, name: str) -> Any:
        return self.server.objects.rows[Key("pods", "default", name)]

    @rule(planned=st.none() | which)
    def a_pod_is_made(self, planned: int | None) -> None:
        self.number += 1
        name = f"p{self.number}"
        plan = {} if planned is None else {IDX_0: str(two_gpus().gpus[planned].minor)}
        self.pods[name] = self.made(name, NODE, **plan)

    @precondition(lambda self: self.pods)
    @rule(place=places, gpu=which)
    def a_pod_is_settled(self, place: int, gpu: int) -> None:
        name = self.one(place)
        uid, chosen = self.pods[name], two_gpus().gpus[gpu]
        self.happened["settled while it is away" if self.away else "settled"] += 1
        self.grants[uid] = granted(uid, chosen)
        self.member.correct(Claimant(PodUID(uid), "default", name, "main"), (chosen,))

    @precondition(lambda self: self.pods)
    @rule(place=places, gpu=which)
    def a_pod_is_settled_during_an_outage(self, place: int, gpu: int) -> None:
        self.the_server_goes_or_comes(answers=False)
        self.a_pod_is_settled(place, gpu)

    @precondition(lambda self: self.pods)
    @rule(place=places, again=st.booleans())
    def a_pod_goes(self, place: int, again: bool) -> None:  # noqa: FBT001
        """And may be made anew under its name, as another."""
        name = self.one(place)
        self.grants.pop(self.pods.pop(name), None)
        self.run(self.server.remove(Key("pods", "default", name)))
        if again:
            self.pods[name] = self.made(name, NODE)

    def one(self, place: int) -> str:
        return sorted(self.pods)[place % len(self.pods)]

    @rule(answers=st.booleans())
    def the_server_goes_or_comes(self, answers: bool) -> None:  # noqa: FBT001
        if answers == self.away:
            self.happened["comes back" if answers else "goes away"] += 1
            self.run(self.server.start() if answers else self.server.stop())
            self.away = not answers

    @rule(answers=st.booleans())
    def the_server_hangs_or_answers(self, answers: bool) -> None:  # noqa: FBT001
        self.happened["answers" if answers else "hangs"] += 1
        (self.server.answering.set if answers else self.server.answering.clear)()

    @rule(refusal=st.sampled_from(REFUSALS), times=st.integers(1, 6))
    def the_server_refuses(self, refusal: tuple[int, str], times: int) -> None:
        self.happened[refusal[1]] += 1
        self.server.refuse(*refusal, times=times)

    @rule(forget=st.booleans())
    def connections_are_cut(self, forget: bool) -> None:  # noqa: FBT001
        self.run(self.server.forget() if forget else self.server.cut())

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def the_agent_restarts(self) -> None:
        self.stop_agent()
        self.start_agent()

    @rule()
    def all_is_written_in_the_end(self) -> None:
        self.the_server_goes_or_comes(answers=True)
        self.server.answering.set()
        self.run(asyncio.sleep(LONG))
        assert not self.task.done()
        for name, uid in self.pods.items():
            if uid in self.grants:
                self.happened["written"] += 1
                gpu = two_gpus().by_uuid(self.grants[uid].gpus[0])
                says = self.pod(name)["metadata"]["annotations"]
                assert gpu is not None
                assert (says[IDX_0], says[ANNOTATION_GPU_ASSIGNED]) == (str(gpu.minor), "true")
        assert not self.pod("stranger")["metadata"]["annotations"]

    def teardown(self) -> None:
        if hasattr(self, "server"):
            self.stop_agent()
            self.run(self.server.stop())
        self.runner.close()


async def _ended(task: "asyncio.Task[None]") -> None:
    await asyncio.gather(task, return_exceptions=True)


SEARCH = settings(
    derandomize=True,
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
EXPECTED = {
    *("settled", "settled while it is away", "goes away", "comes back", "hangs", "written"),
    *(word for _, word in REFUSALS),
}
"""What the search has to have met."""


def test_whatever_the_api_server_does_pods_say_in_the_end_what_they_have() -> None:
    Outages.happened.clear()

    run_state_machine_as_test(Outages, settings=SEARCH)

    assert EXPECTED - Outages.happened.keys() == set()
