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
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds, with client-go's defaults. duration: until a standby takes an unrenewed lease.
    deadline: until the leader stops leading. retry: between two attempts."""

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


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
        self._seen: Any = {}
        """The lease as it was when it last changed, by our clock `_since`."""
        self._since = 0.0
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
        return str((self._seen.get("spec") or {}).get("holderIdentity") or "")

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
        path = f"{self._all}/{self._name}"
        spec = {
            "holderIdentity": self.us,
            "leaseDurationSeconds": int(self._times.duration),
            "renewTime": _stamp(),
        }
        acquired = {**spec, "acquireTime": spec["renewTime"], "leaseTransitions": 1}
        lease = await self._api.find(path)
        if lease is None:
            # No replica has made it yet; another one may do so at the same time.
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            made = {**body, "metadata": {"name": self._name}, "spec": acquired}
            return await self._write(self._api.create, self._all, made)
        self._observe(lease)
        seen = lease.get("spec") or {}
        if self.holder != self.us:
            expires = self._since + float(seen.get("leaseDurationSeconds") or 0)
            if self.holder and self._clock() < expires:
                return False
            spec = {**acquired, "leaseTransitions": int(seen.get("leaseTransitions") or 0) + 1}
        return await self._write(self._api.patch, path, self._change(spec))

    def _observe(self, lease: Any) -> None:
        version = lease["metadata"]["resourceVersion"]
        if not self._seen or self._seen["metadata"]["resourceVersion"] != version:
            self._seen, self._since = lease, self._clock()

    def _change(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a patch that conflicts once another replica has written."""
        version = self._seen["metadata"]["resourceVersion"]
        return {"metadata": {"resourceVersion": version}, "spec": spec}

    async def _write(self, call: Any, path: str, body: Any) -> bool:
        """Return False on a conflict: another replica was first."""
        try:
            self._observe(await call(path, body))
        except ApiRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return False
        return True

    async def _release(self) -> None:
        """Spare the next leader the wait until it expires. Best effort."""
        if not self.leads:
            return
        self._until = float("-inf")
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _stamp()}
        path = f"{self._all}/{self._name}"
        try:
            async with asyncio.timeout(1.0):
                await self._write(self._api.patch, path, self._change(spec))
        except (ApiRefused, ApiUnavailable, TimeoutError, *NOT_UNDERSTOOD) as error:
            log.info("cannot release lease %s: %s", self._name, error)


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
