"""Questions that the world may leave unanswered."""

import threading
import time
from pathlib import Path

from gpumanager.doctor.question import DoctorQuestion, Unseen


def test_an_answer_is_the_answer() -> None:
    assert DoctorQuestion(lambda: 42).answer() == 42


def test_what_goes_wrong_is_why_there_is_none(tmp_path: Path) -> None:
    answer = DoctorQuestion((tmp_path / "absent").read_text).answer()

    assert isinstance(answer, Unseen)
    assert "absent" in answer.cause


def test_nobody_waits_for_long_for_who_does_not_answer() -> None:
    never = threading.Event()
    began = time.monotonic()

    answer = DoctorQuestion(never.wait, seconds=0.05).answer()

    assert answer == Unseen("no answer within 0.05 s")
    assert time.monotonic() - began < 30
    never.set()


def test_all_that_are_asked_at_once_wait_together() -> None:
    both = threading.Barrier(2)

    questions = [DoctorQuestion(lambda: both.wait(120) >= 0, seconds=120) for _ in range(2)]

    assert [one.answer() for one in questions] == [True, True]
