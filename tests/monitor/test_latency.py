"""How long the kubelet waits is measured outside of the allocator, whatever comes of the call."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnwritable
from gpumanager.grants.refusals import NotResolved, Refused
from gpumanager.monitor.metrics.journal_timing import TimedJournalFile
from gpumanager.monitor.metrics.latency import BOUNDS, CALLS, RESOURCES, SECONDS_NAME, Latencies
from gpumanager.names import VCORE
from tests.monitor.monitor_world import claimant, share


async def say(answer: object) -> object:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("fine", "answered"),
        (Refused("no room"), "refused"),
        (NotResolved("not yet"), "retry"),
        (OSError("broken"), "failed"),
    ],
)
async def test_every_answer_is_timed_once_and_passed_on(answer: object, outcome: str) -> None:
    latencies = Latencies()
    (passed_on,) = await asyncio.gather(
        latencies.timed("Allocate", VCORE, say(answer)), return_exceptions=True
    )

    assert passed_on is answer

    assert +latencies.outcomes == {("Allocate", VCORE, outcome): 1}
    assert buckets(latencies, "Allocate", VCORE)["+Inf"] == 1


async def test_claims_that_are_refused_are_counted_by_their_reason() -> None:
    latencies = Latencies()

    for reason in ("no-room", "no-room", ""):
        await latencies.timed("Prepare", "claim", say(Refused("no", reason)))

    assert latencies.refusals == {"no-room": 2, "other": 1}


async def test_a_resource_that_is_not_ours_makes_no_series() -> None:
    latencies = Latencies()
    before = set(latencies.outcomes)

    await latencies.timed("Allocate", "example.com/made-up", say(1))

    assert set(latencies.outcomes) == before


def buckets(latencies: Latencies, call: str, resource: str) -> dict[str, float]:
    """How many answers took no longer than each bound."""
    (metric,) = latencies.seconds.collect()
    return {
        one.labels["le"]: one.value
        for one in metric.samples
        if one.name == f"{SECONDS_NAME}_bucket"
        and (one.labels["rpc"], one.labels["resource"]) == (call, resource)
    }


def test_every_call_and_resource_has_its_buckets_from_the_start() -> None:
    for call in CALLS:
        for resource in RESOURCES:
            found = buckets(Latencies(), call, resource)
            assert found == dict.fromkeys([*map(str, BOUNDS), "+Inf"], 0)


def journal(**more: Any) -> Journal:
    one = share(claimant("real"), **more)
    return Journal({one.id: one})


def test_writes_of_the_journal_are_counted(tmp_path: Path) -> None:
    file = TimedJournalFile(tmp_path / "journal")
    assert file.size() == 0

    file.save(journal())

    assert (file.measured.writes, file.measured.errors) == (1, 0)
    assert file.measured.seconds > 0
    assert file.size() == (tmp_path / "journal").stat().st_size
    assert JournalFile(file.path).load() == journal()


def test_a_write_that_fails_is_counted_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = TimedJournalFile(tmp_path / "file" / "journal")

    with pytest.raises(JournalUnwritable):
        file.save(journal())

    assert (file.measured.writes, file.measured.errors) == (0, 1)
