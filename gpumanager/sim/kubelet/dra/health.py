"""What drivers report of their devices' health, and how long it holds. Pure.

Follows pkg/kubelet/cm/dra/healthinfo.go: a report is the complete list; a device that it leaves out
keeps its health until that is too old, and then it is unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.dra.api import drahealth_v1_pb2 as pb

RESEND_SECONDS: Final = 30
"""How long a report holds where the driver gives no time."""
LONGEST_MESSAGE: Final = 1024
UNKNOWN: Final = "Unknown"
WORDS: Final = {pb.HEALTHY: "Healthy", pb.UNHEALTHY: "Unhealthy"}

DeviceKey = tuple[str, str]
"""Pool and name."""


@dataclass(frozen=True, slots=True)
class ReportedHealth:
    """seconds: how long it holds. at: when it was reported, in nanoseconds of its clock."""

    health: str = UNKNOWN
    message: str = ""
    seconds: int = RESEND_SECONDS
    at: int = 0

    def stale(self, now: int) -> bool:
        return now - self.at > self.seconds * 1_000_000_000


@dataclass(frozen=True, slots=True)
class HealthBooks:
    """By driver and device."""

    drivers: Mapping[str, Mapping[DeviceKey, ReportedHealth]] = field(default_factory=dict)

    def get(self, driver: str, device: DeviceKey, now: int) -> ReportedHealth:
        found = self.drivers.get(driver, {}).get(device, ReportedHealth(at=now))
        return ReportedHealth(at=now) if found.stale(now) else found

    def update(
        self, driver: str, report: Iterable[pb.DeviceHealth], now: int
    ) -> "tuple[HealthBooks, frozenset[DeviceKey]]":
        """Return the new books, and the devices whose health has changed."""
        before = self.drivers.get(driver, {})
        reported = {}
        for one in report:
            message = one.message
            if len(message) > LONGEST_MESSAGE:
                message = f"{message[: LONGEST_MESSAGE - 3]}..."
            seconds = one.health_check_timeout_seconds
            reported[one.device.pool_name, one.device.device_name] = ReportedHealth(
                WORDS.get(one.health, UNKNOWN),
                message,
                seconds if seconds > 0 else RESEND_SECONDS,
                now,
            )
        kept = {key: row for key, row in before.items() if not row.stale(now)}
        changed = {
            key
            for key, row in reported.items()
            if key not in before or replace(row, at=before[key].at) != before[key]
        }
        gone = {
            key
            for key, row in before.items()
            if key not in reported and key not in kept and row.health != UNKNOWN
        }
        books = HealthBooks({**self.drivers, driver: {**kept, **reported}})
        return books, frozenset(changed | gone)

    def clear(self, driver: str) -> "HealthBooks":
        """Forget a driver: its stream has ended, whichever instance's it was."""
        return HealthBooks({name: row for name, row in self.drivers.items() if name != driver})
