"""ResourceQuota for pods that were converted to claims, which Kubernetes does not count any more.

Users keep their quotas of the two resources. The quota's status has what plain pods use; this
module adds what claims use, and a pod that exceeds the sum is rejected with Kubernetes' message.
Two pods that come at once both count: an admitted pod counts from then on, before the watch shows
it.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer
from gpumanager.kube.quantity import whole_number
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.claims.keeper import TemplateUser
from gpumanager.scheduler.claims.template import ClaimShape

QUOTAS: Final = "/api/v1/resourcequotas"
REQUESTS: Final = "requests."
EXPECTED_SECONDS: Final = 10.0
"""So long a pod that was let in counts without having been seen: it may have been refused since."""


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """One ResourceQuota. hard, used: by resource, as far as it names ours."""

    name: str
    hard: dict[str, int]
    used: dict[str, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """A pod that was let in and is not seen yet. until: by the clock."""

    namespace: str
    shape: ClaimShape
    until: float


def exceeded(
    quotas: Iterable[ResourceQuota], asked: ClaimShape, claimed: Iterable[ClaimShape]
) -> Iterator[str]:
    """Yield why this claim may not be made beside those that are there, in Kubernetes' words."""
    there = tuple(claimed)
    by_claims = {VCORE: sum(one.cores for one in there), VMEMORY: sum(one.blocks for one in there)}
    wanted = {VCORE: asked.cores, VMEMORY: asked.blocks}
    for quota in quotas:
        over = [
            key
            for key, hard in quota.hard.items()
            if wanted[key] and quota.used.get(key, 0) + by_claims[key] + wanted[key] > hard
        ]
        if over:
            used = {key: quota.used.get(key, 0) + by_claims[key] for key in over}
            yield (
                f"exceeded quota: {quota.name}, requested: {_said(over, wanted)}, "
                f"used: {_said(over, used)}, limited: {_said(over, quota.hard)}"
            )


def read_quota(item: Any) -> ResourceQuota:
    """Read it. A scoped one counts as an unscoped: it is stricter then, never laxer."""
    hard = _ours((item.get("spec") or {}).get("hard"))
    return ResourceQuota(
        str(item["metadata"]["name"]), hard, _ours((item.get("status") or {}).get("used"))
    )


class ClaimQuotas:
    """Follows the quotas. users: the pods with claims, of all namespaces."""

    path = QUOTAS

    def __init__(
        self,
        api: KubeClient,
        users: Callable[[], Iterable[TemplateUser]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.informer = Informer(api, self)
        self._users = users
        self._clock = clock
        self._quotas: dict[tuple[str, str], ResourceQuota] = {}
        self._expected: list[Expected] = []

    def refusals(self, namespace: str, claim: ClaimShape) -> tuple[str, ...]:
        """Return why a pod with this claim is refused; empty: it is let in."""
        now = self._clock()
        self._expected = [one for one in self._expected if one.until > now]
        claimed = [
            *(one.shape for one in self._users() if one.namespace == namespace and one.shape),
            *(one.shape for one in self._expected if one.namespace == namespace),
        ]
        quotas = [one for (where, _), one in self._quotas.items() if where == namespace]
        return tuple(exceeded(quotas, claim, claimed))

    def expect(self, namespace: str, claim: ClaimShape) -> None:
        """Count a pod with this claim from now on: it was let in."""
        if any(where == namespace for where, _ in self._quotas):
            until = self._clock() + EXPECTED_SECONDS
            self._expected.append(Expected(namespace, claim, until))

    def withdraw(self, namespace: str, claim: ClaimShape) -> None:
        """Count a pod with this claim no more, until the watch brings one."""
        for one in self._expected:
            if (one.namespace, one.shape) == (namespace, claim):
                self._expected.remove(one)
                return

    def seen(self, user: TemplateUser) -> None:
        """Take note that the watch has brought a new pod."""
        if user.shape:
            self.withdraw(user.namespace, user.shape)

    async def run(self) -> None:
        """Follow the quotas for as long as the task lives."""
        await self.informer.run()

    def name(self, item: Any) -> str:
        return f"{item['metadata']['namespace']}/{item['metadata']['name']}"

    def put(self, item: Any) -> None:
        key, quota = self._key(item), read_quota(item)
        if quota.hard:
            self._quotas[key] = quota
        else:
            self._quotas.pop(key, None)

    def remove(self, item: Any) -> None:
        self._quotas.pop(self._key(item), None)

    def only(self, names: set[str]) -> None:
        self._quotas = {key: one for key, one in self._quotas.items() if "/".join(key) in names}

    def _key(self, item: Any) -> tuple[str, str]:
        return str(item["metadata"]["namespace"]), str(item["metadata"]["name"])


def _ours(amounts: Any) -> dict[str, int]:
    found = {}
    for key in (VCORE, VMEMORY):
        number = whole_number((amounts or {}).get(REQUESTS + key, ""))
        if number is not None:
            found[key] = number
    return found


def _said(keys: Iterable[str], amounts: dict[str, int]) -> str:
    return ",".join(f"{REQUESTS}{key}={amounts[key]}" for key in keys)
