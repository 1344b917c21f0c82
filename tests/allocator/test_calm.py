"""What can wait does, while the kubelet waits for us; and never for good."""

import asyncio

from gpumanager.deviceplugin.admission.calm import LONGEST, Calm


class Steps:
    """A clock that a look moves on by a tenth of the longest wait."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return 1.0 + self.looks * LONGEST / 10


def test_it_is_calm_until_the_kubelet_calls_and_when_it_has_its_answer() -> None:
    calm = Calm(lambda: 1.0)
    before = calm.now
    calm.expect()
    during = calm.now
    calm.over()

    assert (before, during, calm.now) == (True, False, True)


def test_a_call_that_takes_long_is_no_reason_any_more() -> None:
    now = [1.0]
    calm = Calm(lambda: now[0])
    calm.expect()

    now[0] += LONGEST

    assert calm.now


async def test_whoever_waits_goes_on_when_the_answer_has_left() -> None:
    calm = Calm(lambda: 1.0)
    calm.expect()
    waiting = asyncio.create_task(calm.come())
    await asyncio.sleep(0)
    assert not waiting.done()

    calm.over()

    async with asyncio.timeout(120):
        await waiting


async def test_pods_that_come_without_a_pause_do_not_keep_others_waiting_for_good() -> None:
    clock = Steps()

    class Storm(Calm):
        @property
        def now(self) -> bool:
            self.expect()
            return super().now

    async with asyncio.timeout(120):
        await Storm(clock).come()

    assert clock.looks > 3
