"""Garbage is not looked for while a cluster is read, and what was read is set aside."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from gpumanager.cluster.access import Access
from gpumanager.cluster.api import ApiServer
from gpumanager.scheduler.garbage import YOUNG, collect_in_quiet
from gpumanager.scheduler.service import Extender
from tests.scheduler.served import until


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.enable()


async def test_nothing_is_looked_for_until_the_cluster_was_read() -> None:
    extender = Extender(ApiServer(Access("127.0.0.1", 1)))
    task = asyncio.create_task(collect_in_quiet(extender))
    await until(lambda: not gc.isenabled())

    extender.nodes.listed.set()
    extender.pods.listed.set()

    await until(gc.isenabled)
    assert gc.get_threshold()[:2] == YOUNG
    assert gc.get_freeze_count() > 0
    task.cancel()


async def test_who_is_stopped_while_the_cluster_is_read_leaves_things_as_they_were() -> None:
    task = asyncio.create_task(collect_in_quiet(Extender(ApiServer(Access("127.0.0.1", 1)))))
    await until(lambda: not gc.isenabled())

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert gc.isenabled()
