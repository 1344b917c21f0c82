"""How long the kubelet waits is measured outside of the allocator, whatever comes of the call."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from monitor_world import claimant, share

from gpumanager.cli.timed_allocator import healed
from gpumanager.deviceplugin.identity.resolution import NotResolved
from gpumanager.grants.grant import Refused
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnwritable
from gpumanager.monitor.journal_meter import TimedJournalFile
from gpumanager.monitor.latency import BOUNDS, Histogram, Latencies
from gpumanager.names import VCORE


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
    assert sum(latencies.histograms["Allocate", VCORE].counts) == 1


async def test_a_resource_that_is_not_ours_makes_no_series() -> None:
    latencies = Latencies()
    before = set(latencies.outcomes)

    await latencies.timed("Allocate", "example.com/made-up", say(1))

    assert set(latencies.outcomes) == before


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0001, 0.0002, 0.25, 99.0):
        histogram.observe(seconds)

    buckets = dict(histogram.buckets())

    assert list(buckets) == [*map(str, BOUNDS), "+Inf"]
    assert (buckets["0.0001"], buckets["0.0003"], buckets["0.3"], buckets["10.0"]) == (1, 2, 3, 3)
    assert buckets["+Inf"] == 4
    assert histogram.seconds == pytest.approx(99.2503)


def journal(**more: Any) -> Journal:
    one = share(claimant("real"), **more)
    return Journal({one.id: one})


def test_a_container_that_got_the_place_of_another_is_healed_once() -> None:
    before = journal(candidate=claimant("thought"))
    waiting = share(None, candidate=claimant("thought"))
    swapped = journal(candidate=claimant("thought"))

    assert healed(Journal({waiting.id: waiting}), swapped) == ["a1"]
    assert healed(before, swapped) == []
    assert healed(Journal(), journal(candidate=claimant("real"))) == []
    assert healed(Journal(), journal()) == []


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
