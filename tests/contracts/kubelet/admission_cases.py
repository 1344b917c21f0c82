"""What a plugin is asked while pods are admitted, started and deleted."""

import asyncio
from typing import Any

import pytest

from gpumanager.kube.pod import ContainerKind
from tests.contracts.kubelet.kubelet_stage import IDS, Stage, container, init, one
from tests.contracts.kubelet.kubelet_under_test import ALPHA, Sketch


async def test_each_resource_is_asked_for_its_preference_which_is_what_it_gets(
    stage: Stage,
) -> None:
    stage.alpha.prefer = lambda free, _: ["a7", "a3"]

    (outcome,) = await stage.run(one("plain", 2, 1))

    assert outcome.reason == ""
    assert [set(ids) for ids in stage.alpha.called("preferred")] == [set(IDS[ALPHA])]
    assert [set(ids) for ids in stage.alpha.called("allocate")] == [{"a3", "a7"}]
    assert stage.alpha.must_include == [()]
    assert [len(ids) for ids in stage.beta.called("allocate")] == [1]


async def test_a_preference_that_names_nothing_free_is_replaced(stage: Stage) -> None:
    stage.alpha.prefer = lambda free, _: ["nonsense"]

    await stage.run(one("plain", 2))

    (ids,) = stage.alpha.called("allocate")
    assert len(ids) == 2
    assert set(ids) < set(IDS[ALPHA])


async def test_whoever_is_admitted_is_listed_with_uid_and_spec_before_the_plugin_is_called(
    stage: Stage,
) -> None:
    seen: list[Any] = []

    async def look() -> None:
        seen.extend(pod for pod in await stage.kubelet.pods.pods() if pod.name == "listed")

    stage.alpha.during_allocate = look
    (outcome,) = await stage.run(one("listed", 2))

    assert [pod.uid for pod in seen] == [outcome.uid]
    assert [found.name for found in seen[0].containers] == ["main"]


async def test_admissions_come_one_after_another(stage: Stage) -> None:
    async def linger() -> None:
        await asyncio.sleep(0.05)

    stage.alpha.during_allocate = stage.beta.during_allocate = linger
    outcomes = await stage.run(*(one(f"crowd-{n}", 1, 1) for n in range(5)))

    assert [outcome.reason for outcome in outcomes] == [""] * 5
    assert len(stage.alpha.called("allocate")) == len(stage.beta.called("allocate")) == 5
    assert (stage.alpha.at_once, stage.beta.at_once) == (1, 1)


async def test_an_init_containers_devices_are_given_again_without_asking(stage: Stage) -> None:
    sketch = Sketch(
        "steps", [init("init", 2), container("first", 2, ends=True), container("second", 3)]
    )
    await stage.run(sketch)

    allocated = [set(ids) for ids in stage.alpha.called("allocate")]
    assert allocated[0] == allocated[1]
    assert not allocated[1] & allocated[2]
    assert len(stage.alpha.called("preferred")) == 2


async def test_a_larger_container_has_to_include_what_its_init_container_had(stage: Stage) -> None:
    await stage.run(Sketch("grows", [init("init", 2), container("main", 5)]))

    first, second = (set(ids) for ids in stage.alpha.called("allocate"))
    assert [set(ids) for ids in stage.alpha.must_include] == [set(), first]
    assert first < second


async def test_a_sidecars_devices_stay_its_own(stage: Stage) -> None:
    if not stage.version.sidecars:
        pytest.skip(f"kubelet {stage.version.number} has no sidecars")
    sidecar = container("side", 2, kind=ContainerKind.SIDECAR)

    await stage.run(Sketch("beside", [sidecar, container("main", 2)]))

    first, second = (set(ids) for ids in stage.alpha.called("allocate"))
    assert not first & second
    assert set((await stage.listed())["beside"]) == {"side", "main"}


async def test_a_plugins_refusal_fails_the_pod_with_its_text(stage: Stage) -> None:
    stage.alpha.refuse = {"allocate": "no free GPU: all are taken"}

    (outcome,) = await stage.run(one("refused", 2))

    assert outcome.reason == "UnexpectedAdmissionError"
    assert "no free GPU: all are taken" in outcome.message
    stage.alpha.refuse = {}
    (after,) = await stage.run(one("next", 10))
    assert after.reason == ""


async def test_more_than_there_is_is_refused_before_the_plugin_is_asked(stage: Stage) -> None:
    (outcome,) = await stage.run(one("large", 11))

    assert outcome.reason == "UnexpectedAdmissionError"
    assert f"unavailable for {ALPHA}. Requested: 11, Available: 10" in outcome.message
    assert stage.alpha.called("preferred") == stage.alpha.called("allocate") == []


async def test_a_start_that_fails_is_tried_again(stage: Stage) -> None:
    stage.alpha.refuse, stage.alpha.refuse_times = {"pre_start": "not yet"}, 1

    (outcome,) = await stage.run(one("patient", 2))

    assert outcome.reason == ""
    assert len(stage.alpha.called("pre_start")) >= 2
    assert len(stage.alpha.called("allocate")) == 1


async def test_a_container_that_starts_again_is_only_told_so(stage: Stage) -> None:
    await stage.run(one("again", 2, starts=2))

    told = [set(ids) for ids in stage.alpha.called("pre_start")]
    assert told == [set(stage.alpha.called("allocate")[0])] * 2
    assert len(stage.alpha.called("preferred")) == 1


async def test_devices_of_a_deleted_pod_can_be_had_again_and_nobody_says_so(stage: Stage) -> None:
    (outcome,) = await stage.run(one("first", 10))
    calls = len(stage.alpha.calls)

    await stage.delete(outcome.uid)
    assert len(stage.alpha.calls) == calls

    (after,) = await stage.run(one("second", 10))
    assert after.reason == ""
