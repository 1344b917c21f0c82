"""What the monitor samples while the agent has no parts yet: nothing."""

from collections.abc import Callable

from gpumanager.deviceplugin.disagreements import KINDS
from gpumanager.deviceplugin.plugin import SOCKETS
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import topology
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger
from gpumanager.limits.pages.usage import AllocationUsage
from gpumanager.limits.processes import Process
from gpumanager.monitor.ports import Sources
from gpumanager.runtime.cgroup import Membership


def nothing(node: str, journal_bytes: Callable[[], int]) -> Sources:
    """Of a node without GPUs, and without a kubelet."""
    none = topology((), ())
    ledger = Ledger(none)
    return Sources(
        node=node,
        topology=lambda: none,
        ledger=lambda: ledger,
        journal=Journal,
        journal_bytes=journal_bytes,
        books=_Nobody(),
        residents=_Nobody(),
        registered=lambda: dict.fromkeys(SOCKETS, False),
        disagreements=lambda: dict.fromkeys(KINDS, 0),
    )


class _Nobody:
    """Knows nothing of any allocation and any process."""

    def usage(self, grant: Grant) -> AllocationUsage:
        raise GpuManagerError(f"nothing is known of {grant.id} yet")

    def of(self, process: Process) -> Membership | None:
        del process
        return None
