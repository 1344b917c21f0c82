"""GPU health in the node agent: which GPUs are watched, by which rules, and what is notified."""

import asyncio
import os

from gpumanager.agent.interfaces import Interfaces
from gpumanager.gpu.discovery import DeviceDiscovery, joined
from gpumanager.gpu.health.events import NvmlHealth
from gpumanager.gpu.health.prober import ProbeTiming
from gpumanager.gpu.health.reports import NodeReports
from gpumanager.gpu.health.state import RecoveryPolicy
from gpumanager.gpu.health.watch import HealthRules, HealthWatch
from gpumanager.gpu.health.xids import checks_of
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.node import Node
from gpumanager.settings import AgentSettings

FATAL_FACTOR = 4
"""A GPU that needed a reset has to be good for so many times longer."""


def health_watch(
    settings: AgentSettings,
    node: Node,
    reports: NodeReports,
    judged: asyncio.Event,
) -> HealthWatch:
    """Over the node's GPUs, and those that containers hold though they are missing. judged: as
    `HealthWatch` has it."""
    allocations = node.journal.grants.values()
    return HealthWatch(
        (gpu.uuid for gpu in node.topology.gpus),
        NvmlHealth(),
        rules=rules_of(settings),
        reports=reports,
        held=(gpu for allocation in allocations for gpu in allocation.gpus),
        judged=judged,
    )


def rules_of(settings: AgentSettings) -> HealthRules:
    recovery, period = settings.health_recovery, settings.health_check_period
    return HealthRules(
        checks_of(os.environ),
        RecoveryPolicy(transient=recovery, fatal=FATAL_FACTOR * recovery),
        ProbeTiming(probe=period, wait=min(ProbeTiming().wait, period)),
    )


class Kubelet:
    """Closes what is out of use, and tells the kubelet."""

    def __init__(self, interfaces: Interfaces, search: DeviceDiscovery) -> None:
        self._interfaces = interfaces
        self._search = search

    async def unhealthy(self, gpus: frozenset[GpuUUID]) -> None:
        self._interfaces.node.mark_unhealthy(gpus)
        await self._interfaces.refresh()

    async def appeared(self, gpus: frozenset[GpuUUID]) -> None:
        del gpus  # the driver's list is asked for anew
        found = await self._search.look()
        await self._interfaces.adopt(joined(self._interfaces.node.topology, found))
        await self._interfaces.refresh()
