"""A thread for questions that may hang: it answers in order, and keeps no program from ending."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpumanager.gpu.daemon_thread import DaemonThreadExecutor

BOUND = 120.0


def test_answers_and_errors_come_to_who_asked() -> None:
    thread = DaemonThreadExecutor("questions")

    first = thread.submit(lambda: 1)
    second = thread.submit(lambda: 1 // 0)

    assert first.result(BOUND) == 1
    with pytest.raises(ZeroDivisionError):
        second.result(BOUND)
    assert thread.submit(max, 2, 3).result(BOUND) == 3
    thread.shutdown()


def test_it_ends_after_what_it_was_given_and_begins_anew_when_asked_again() -> None:
    thread = DaemonThreadExecutor("questions")
    meanwhile = threading.Event()
    under_way = thread.submit(meanwhile.wait, BOUND)
    given = thread.submit(threading.current_thread)

    thread.shutdown()
    thread.shutdown()
    later = thread.submit(threading.current_thread)
    assert later.result(BOUND).is_alive()

    meanwhile.set()
    assert under_way.result(BOUND)
    first = given.result(BOUND)
    first.join(BOUND)
    assert not first.is_alive()
    assert first is not later.result(BOUND)
    thread.shutdown()


def test_a_question_that_hangs_does_not_keep_the_program_from_ending() -> None:
    program = Path(__file__).with_name("programs") / "hang_in_executor.py"

    finished = subprocess.run([sys.executable, program], timeout=BOUND, check=False)

    assert finished.returncode == 0
