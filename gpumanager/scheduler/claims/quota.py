"""ResourceQuota for pods that were converted to claims, which Kubernetes does not count any more.

Users keep their quotas of the two resources. The quota's status has what plain pods use; this
module adds what claims use, and a pod that exceeds the sum is rejected with Kubernetes' message.
Two pods that come at once both count: an admitted pod counts from then on, before the watch shows
it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer, ObjectStore
from gpumanager.kube.quantity import whole_number
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.claims.keeper import TemplateUser
from gpumanager.scheduler.claims.template import ClaimShape

REQUESTS: Final = "requests."
EXPECTED_SECONDS: Final = 10.0
"""So long a pod that was let in counts without having been seen: it may have been refused since."""


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """One ResourceQuota. hard, used: by resource, as far as it names ours."""

    namespace: str
    name: str
    hard: dict[str, int]
    used: dict[str, int]


def read_quota(item: Any) -> ResourceQuota | None:
    """Read it; None for one that does not limit our resources. A scoped one counts as an unscoped:
    it is stricter then, never laxer."""
    hard, used = (
        {
            key: number
            for key in (VCORE, VMEMORY)
            if (number := whole_number((amounts or {}).get(REQUESTS + key, ""))) is not None
        }
        for amounts in (
            (item.get("spec") or {}).get("hard"),
            (item.get("status") or {}).get("used"),
        )
    )
    metadata = item["metadata"]
    return ResourceQuota(metadata["namespace"], metadata["name"], hard, used) if hard else None


class ClaimQuotas:
    """Follows the quotas. users: the pods with claims, of all namespaces."""

    def __init__(
        self,
        api: KubeClient,
        users: Callable[[], Iterable[TemplateUser]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        store = ObjectStore("/api/v1/resourcequotas", read_quota)
        self.informer = Informer(api, store)
        self.run = self.informer.run
        self._users = users
        self._clock = clock
        self._quotas: dict[str, ResourceQuota] = store.known
        self._expected: list[tuple[str, ClaimShape, float]] = []
        """Pods that were let in and are not seen yet: namespace, claim, and until when."""

    def refusals(self, namespace: str, claim: ClaimShape) -> tuple[str, ...]:
        """Return why a pod with this claim is refused, in Kubernetes' words; empty: it is not."""
        now = self._clock()
        self._expected = [one for one in self._expected if one[2] > now]
        claims = [one.shape for one in self._users() if one.namespace == namespace]
        claims += [shape for where, shape, _ in self._expected if where == namespace]
        by_claims = {VCORE: sum(one.cores for one in claims)}
        by_claims[VMEMORY] = sum(one.blocks for one in claims)
        wanted, found = {VCORE: claim.cores, VMEMORY: claim.blocks}, []
        for quota in self._of(namespace):
            used = {key: quota.used.get(key, 0) + by_claims[key] for key in quota.hard}
            over = [
                key
                for key, hard in quota.hard.items()
                if wanted[key] and used[key] + wanted[key] > hard
            ]
            if over:
                requested, taken, limited = (
                    ",".join(f"{REQUESTS}{key}={amounts[key]}" for key in over)
                    for amounts in (wanted, used, quota.hard)
                )
                found.append(
                    f"exceeded quota: {quota.name}, requested: {requested}, used: {taken}, "
                    f"limited: {limited}"
                )
        return tuple(found)

    def expect(self, namespace: str, claim: ClaimShape) -> None:
        """Count a pod with this claim from now on: it was let in."""
        if self._of(namespace):
            self._expected.append((namespace, claim, self._clock() + EXPECTED_SECONDS))

    def withdraw(self, namespace: str, claim: ClaimShape) -> None:
        """Count a pod with this claim no more, or once the watch has brought one."""
        for one in self._expected:
            if one[:2] == (namespace, claim):
                self._expected.remove(one)
                return

    def _of(self, namespace: str) -> list[ResourceQuota]:
        return [one for one in self._quotas.values() if one.namespace == namespace]
