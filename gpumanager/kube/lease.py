"""Leader election by a Lease: which of several replicas decides, as with Kubernetes' components.

The holder renews the lease; others take it once it has not been renewed for its duration, by their
own monotonic clock since they saw it change, so clocks need not agree. The holder stops deciding
well before others may begin, and gives the lease back when it ends.

The `kubernetes` package has an election too; decision 0127 says what it does not do.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable

log = logging.getLogger(__name__)

NOT_FOUND: Final = 404
CONFLICT: Final = 409


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds, with client-go's defaults. duration: until a standby takes an unrenewed lease.
    deadline: until the leader stops leading. retry: between two attempts."""

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The lease as it was when it last changed. since: our clock then."""

    holder: str = ""
    version: str = ""
    transitions: int = 0
    duration: float = 0.0
    since: float = 0.0


def observe(seen: LeaseRecord | None, lease: Any, now: float) -> LeaseRecord:
    """Return `seen`, or the lease if it has changed since.

    Raises KeyError, TypeError, AttributeError, ValueError for what is no lease.
    """
    spec, version = lease.get("spec") or {}, str(lease["metadata"]["resourceVersion"])
    if seen is not None and seen.version == version:
        return seen
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        version=version,
        transitions=int(spec.get("leaseTransitions") or 0),
        duration=float(spec.get("leaseDurationSeconds") or 0),
        since=now,
    )


def may_take(seen: LeaseRecord, us: str, now: float) -> bool:
    """Return whether this replica holds it, no replica does, or it has expired."""
    return seen.holder in {"", us} or now >= seen.since + seen.duration


def claim(seen: LeaseRecord, us: str, times: LeaseTimes, stamp: str) -> dict[str, Any]:
    """Return the spec to write for holding it."""
    spec: dict[str, Any] = {
        "holderIdentity": us,
        "leaseDurationSeconds": int(times.duration),
        "renewTime": stamp,
    }
    if seen.holder != us:
        spec |= {"acquireTime": stamp, "leaseTransitions": seen.transitions + 1}
    return spec


class LeaderElection:
    """One candidate, `us`. changed: called with True when it becomes leader, False when it ends."""

    def __init__(
        self,
        api: KubeClient,
        namespace: str,
        name: str,
        us: str,
        *,
        times: LeaseTimes | None = None,
        changed: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.us = us
        self._api = api
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._times = times or LeaseTimes()
        self._changed = changed
        self._clock = clock
        self._seen: LeaseRecord | None = None
        self._until = float("-inf")
        self._led = False
        self._complained = ""

    @property
    def leads(self) -> bool:
        return self.remaining > 0

    @property
    def remaining(self) -> float:
        """Return the seconds of leadership left without another renewal."""
        return max(0.0, self._until - self._clock())

    @property
    def holder(self) -> str:
        """Return the leader, as of the last attempt."""
        return self._seen.holder if self._seen else ""

    async def run(self) -> None:
        """Renew or take the lease until cancelled, then release it."""
        try:
            while True:
                await self.attempt()
                await asyncio.sleep(self._times.retry * random.uniform(0.8, 1.2))  # noqa: S311
        finally:
            await self._release()

    async def attempt(self) -> None:
        """Renew the lease, or take it if it may be taken."""
        began = self._clock()
        try:
            async with asyncio.timeout(self._times.deadline / 2):
                mine = await self._renew_or_take()
        except (ApiRefused, ApiUnavailable, TimeoutError, *NOT_UNDERSTOOD) as error:
            kind = type(error).__name__
            level = logging.DEBUG if self._complained == kind else logging.WARNING
            log.log(level, "lease %s: %s", self._name, error or kind)
            self._complained = kind
        else:
            self._complained = ""
            self._until = began + self._times.deadline if mine else float("-inf")
        if self.leads != self._led:
            self._led = self.leads
            leader = "this replica" if self._led else self.holder or "nobody"
            log.info("lease %s: the leader is %s", self._name, leader)
            self._changed(self._led)

    async def _renew_or_take(self) -> bool:
        try:
            lease = await self._api.get(f"{self._all}/{self._name}")
        except ApiRefused as error:
            if error.status != NOT_FOUND:
                raise
            # No replica has made it yet; another one may do so at the same time.
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": claim(LeaseRecord(), self.us, self._times, _stamp()),
            }
            return await self._unless_conflict(self._api.create, self._all, body)
        self._seen = observe(self._seen, lease, self._clock())
        if not may_take(self._seen, self.us, self._clock()):
            return False
        spec = claim(self._seen, self.us, self._times, _stamp())
        return await self._write(self._seen.version, spec)

    async def _write(self, version: str, spec: Mapping[str, Any]) -> bool:
        """Return False on a conflict: another replica has written since `version`."""
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        path = f"{self._all}/{self._name}"
        return await self._unless_conflict(self._api.patch, path, body)

    async def _unless_conflict(self, call: Any, path: str, body: Any) -> bool:
        try:
            lease = await call(path, body)
        except ApiRefused as error:
            if error.status != CONFLICT:
                raise
            return False
        self._seen = observe(self._seen, lease, self._clock())
        return True

    async def _release(self) -> None:
        """Spare the next leader the wait until it expires. Best effort."""
        if not self.leads or self._seen is None:
            return
        self._until = float("-inf")
        seen = replace(self._seen, holder=self.us)
        spec = {**claim(seen, "", self._times, _stamp()), "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(1.0):
                await self._write(seen.version, spec)
        except (ApiRefused, ApiUnavailable, TimeoutError, *NOT_UNDERSTOOD) as error:
            log.info("cannot release lease %s: %s", self._name, error)


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
