"""NVML is one library with several users: after a driver's reload all of them let go of it."""

import threading

import pynvml
import pytest

from gpumanager.gpu import nvml_session
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_library import Library
from gpumanager.gpu.nvml_session import NvmlSession
from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery
from tests.gpu.nvml_answers import answers, refuse


class CountedNvml:
    """Opened and closed as often as asked; alive only where the driver it was opened in lives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.users = 0
        self.driver = self.opened_in = 1
        monkeypatch.setattr(nvml_session, "LIBRARY", Library())  # other tests' users are not ours
        answers(monkeypatch, Init=self._open, Shutdown=self._close, DeviceGetCount=self._count)

    def _open(self) -> None:
        if self.users == 0:
            self.opened_in = self.driver
        self.users += 1

    def _close(self) -> None:
        self.users -= 1

    def _count(self) -> int:
        if self.opened_in != self.driver:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        return 2


def count(session: NvmlSession) -> int:
    return int(session.answer(pynvml.nvmlDeviceGetCount, "counting"))


def test_a_user_that_asks_nothing_keeps_nobody_from_a_driver_that_was_reloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library, idle, busy = CountedNvml(monkeypatch), NvmlSession(), NvmlSession()
    assert count(idle) == count(busy) == 2

    library.driver = 2
    with pytest.raises(NvmlError):
        count(busy)

    assert count(busy) == 2
    assert library.users == 1
    assert count(idle) == 2


def test_a_user_whose_question_hangs_holds_the_others_up_with_an_error_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library, hanging, busy = CountedNvml(monkeypatch), NvmlSession(), NvmlSession()
    count(busy)
    asked, go = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        go.wait()

    thread = threading.Thread(target=lambda: hanging.answer(hang, "asking"))
    thread.start()
    asked.wait()
    library.driver = 2
    for _ in range(2):
        with pytest.raises(NvmlError):
            count(busy)
    go.set()
    thread.join()

    assert count(busy) == 2


def test_a_user_who_asks_without_a_pause_lets_go_before_its_next_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its questions are longer than others wait for it, and nothing is ever between them."""
    library, busy, other = CountedNvml(monkeypatch), NvmlSession(), NvmlSession()
    asked, go = threading.Semaphore(0), threading.Semaphore(0)

    def wait() -> None:
        asked.release()
        go.acquire()

    def ask_twice() -> None:
        for _ in range(2):
            busy.answer(wait, "waiting for events")

    count(other)
    thread = threading.Thread(target=ask_twice)
    thread.start()
    asked.acquire()
    with pytest.raises(NvmlError):
        other.answer(refuse(pynvml.NVML_ERROR_UNKNOWN), "asking")
    go.release()
    asked.acquire()

    assert count(other) == 2
    assert library.users == 2
    go.release()
    thread.join()


def test_a_library_that_cannot_be_opened_has_no_users(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    missing = refuse(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    answers(monkeypatch, Init=missing, Shutdown=lambda: closed.append(1))
    session = NvmlSession()

    with pytest.raises(NvmlError, match="install the NVIDIA driver"):
        count(session)
    session.close()

    assert closed == []


@pytest.mark.parametrize("query", [NvmlQuery(processes=None), NvmlQuery(samples=None)])
def test_nvml_that_fails_is_opened_anew_at_the_next_question(
    monkeypatch: pytest.MonkeyPatch, query: NvmlQuery
) -> None:
    opened: list[int] = []
    failing = refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    answers(monkeypatch, Init=lambda: opened.append(1), DeviceGetCount=failing)
    passes = NvmlPasses()

    with pytest.raises(NvmlError, match="asking what the GPUs do"):
        passes(query)
    answers(monkeypatch, Init=lambda: opened.append(1))

    reading = passes(query)
    assert set(reading.held or reading.samples) == {"GPU-0", "GPU-1"}
    assert len(opened) == 2
