"""What is written when, and how often what failed is tried."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpumanager.ids import PodUID
from gpumanager.kube import writer
from gpumanager.kube.backoff import Backoff
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.kube.events import UNKNOWN_SECONDS, EventRecorder, KubeEvent, ObjectReference
from gpumanager.kube.writer import Task, Writer, retry_on_conflict


class Desk:
    """A writer on a clock by hand, and what its tasks met."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.attempts: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.writer = Writer(
            backoff=Backoff(10.0, 100.0), outage=Backoff(4.0, 60.0), clock=lambda: self.now
        )

    def task(self, key: str) -> Task:
        async def perform() -> None:
            self.attempts.append(key)
            if key in self.errors:
                raise self.errors[key]

        return Task(key, f"{key} of something", perform)

    async def round(self, *keys: str, after: float = 0.0) -> list[str]:
        """What is attempted in a round, so many seconds later."""
        self.now += after
        self.attempts.clear()
        await self.writer.round(tuple(self.task(key) for key in keys))
        return list(self.attempts)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def refused(status: int, retry_after: float | None = None) -> ApiRefused:
    return ApiRefused("PATCH", status, "Reason", "said", retry_after)


async def test_what_was_written_rests_a_moment(desk: Desk) -> None:
    assert await desk.round("a") == ["a"]
    assert await desk.round("a", after=0.5) == []
    assert await desk.round("a", after=0.5) == ["a"]


async def test_what_is_refused_waits_by_itself_longer_and_longer(desk: Desk) -> None:
    desk.errors["a"] = refused(422)

    assert await desk.round("a", "b") == ["a", "b"]
    assert await desk.round("a", "b", after=4.9) == ["b"]
    assert await desk.round("a", "b", after=5.2) == ["a", "b"]
    assert await desk.round("a", after=9.9) == []
    assert await desk.round("a", after=10.2) == ["a"]


async def test_what_is_no_longer_wanted_is_forgotten(desk: Desk) -> None:
    desk.errors["a"] = refused(422)
    await desk.round("a")

    await desk.round()

    assert await desk.round("a") == ["a"]


async def test_an_answer_that_is_not_understood_is_said_and_tried_again(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.errors["a"] = KeyError("metadata")

    assert await desk.round("a", "b") == ["a", "b"]
    assert "unexpected answer" in caplog.text
    assert await desk.round("a", after=10.2) == ["a"]


async def test_a_server_that_asks_for_patience_gets_it(desk: Desk) -> None:
    desk.errors["a"] = refused(429, retry_after=50.0)
    await desk.round("a")

    assert await desk.round("a", after=49.0) == []
    assert await desk.round("a", after=2.0) == ["a"]


async def test_where_nobody_answers_everything_waits_and_then_everything_goes(
    desk: Desk,
) -> None:
    desk.errors["a"] = ApiUnavailable("nobody")

    assert await desk.round("a", "b") == ["a"]
    assert not desk.writer.reachable
    assert await desk.round("a", "b", after=1.9) == []
    desk.errors.clear()
    assert await desk.round("a", "b", after=2.2) == ["a", "b"]
    assert desk.writer.reachable


async def test_a_missing_permission_is_said_once_for_each_kind(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.errors.update(dict.fromkeys(("labels", "event"), refused(403)))
    for _ in range(3):
        await desk.round("labels", "event", after=1000.0)

    assert [one.levelname for one in caplog.records] == ["WARNING", "WARNING"]


@pytest.mark.parametrize(("conflicts", "attempts"), [(0, 1), (3, 4), (9, 4)])
async def test_a_conflict_is_tried_again_a_few_times(
    monkeypatch: pytest.MonkeyPatch, conflicts: int, attempts: int
) -> None:
    monkeypatch.setattr(writer, "CONFLICT_SECONDS", 0.0)
    made: list[int] = []

    async def write() -> str:
        made.append(1)
        if len(made) <= conflicts:
            raise refused(409)
        return "written"

    await _outcome(retry_on_conflict, write)

    assert len(made) == attempts


async def test_another_refusal_is_not_tried_again_at_once() -> None:
    made: list[int] = []

    async def write() -> None:
        made.append(1)
        raise refused(404)

    await _outcome(retry_on_conflict, write)

    assert made == [1]


async def _outcome(
    retry: Callable[[Callable[[], Awaitable[object]]], Awaitable[object]],
    write: Callable[[], Awaitable[object]],
) -> None:
    try:
        await retry(write)
    except ApiRefused as error:
        assert error.status in {404, 409}  # noqa: PT017 - either outcome is counted


class Events:
    """A recorder, and the events that were written, in turn. there: by name, and their counts."""

    def __init__(self) -> None:
        self.now = 100.0
        self.objects: list[Any] = []
        self.there: dict[str, int] = {}
        api: Any = self
        self.recorder = EventRecorder(api, "node", elapsed=lambda: self.now)

    @property
    def written(self) -> list[str]:
        return [one["message"] for one in self.objects]

    async def create(self, _path: str, item: Any) -> Any:
        if (name := item["metadata"]["name"]) in self.there:
            raise refused(409)
        self.objects.append(item)
        self.there[name] = item["count"]

    async def get(self, path: str) -> Any:
        return {"count": self.there[path.rpartition("/")[2]]}

    async def patch(self, path: str, body: Any) -> Any:
        self.there[path.rpartition("/")[2]] = body["count"]

    async def say(self, message: str, uid: str = "u", *, warning: bool = True) -> None:
        about = ObjectReference("Pod", "p", uid, "default")
        more: Any = {"warning": warning, "reason": "GpuRefused", "message": message, "about": about}
        self.recorder.record(None, **more)
        for task in self.recorder.tasks():
            await task.perform()
        assert len(self.recorder) == 0


async def test_the_same_event_goes_out_once_a_minute() -> None:
    events = Events()
    for now, message in ((100.0, "a"), (159.0, "a"), (159.0, "b"), (160.0, "a")):
        events.now = now
        await events.say(message)

    assert events.written == ["a", "b"]
    assert sorted(events.there.values()) == [1, 2]


async def test_an_event_is_a_warning_or_not() -> None:
    events = Events()
    await events.say("a")
    await events.say("b", warning=False)

    assert [one["type"] for one in events.objects] == ["Warning", "Normal"]


async def test_an_event_of_a_pod_that_stays_unknown_is_dropped() -> None:
    events = Events()
    events.recorder.record(PodUID("u"), warning=True, reason="R", message="m")

    for later, kept in ((UNKNOWN_SECONDS, 1), (1.0, 0)):
        events.now += later
        assert list(events.recorder.tasks()) == []
        assert len(events.recorder) == kept


async def test_a_pod_of_many_words_is_cut_short_and_the_others_are_not() -> None:
    events = Events()
    for number in range(30):
        await events.say(f"{number}")
    await events.say("another", uid="another")
    events.now += 61.0
    await events.say("later")

    assert events.written == [*map(str, range(25)), "another", "later"]


@pytest.mark.parametrize("gap", ["-", ".", "a"])
def test_an_event_of_a_pod_with_the_longest_name_has_one_that_kubernetes_takes(gap: str) -> None:
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    subject = ObjectReference("Pod", "p" * 235 + gap + "q" * 17, "u", "default")

    name = KubeEvent(subject, True, "GpuRefused", "no room").name

    assert len(name) <= 253
    assert re.fullmatch(rf"{label}(\.{label})*", name)


def test_a_back_off_grows_to_its_most_and_differs_by_luck() -> None:
    pauses = []
    backoff = Backoff(1.0, 8.0)
    for _ in range(6):
        pauses.append(backoff.pause(1.0))
        backoff = backoff.failed()

    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert backoff.pause(0.0) == 4.0
