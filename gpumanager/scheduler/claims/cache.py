"""Cache of the cluster's claims and ResourceSlices, for scoring nodes.

kube-scheduler accounts for claims; this cache only serves scores. It may be slightly stale, which
at worst makes a score less good.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.kube.claims import AllocatedDevice, NodeSlice, read_slice
from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer
from gpumanager.kube.pod import PodView
from gpumanager.names import CLAIM_DRIVER
from gpumanager.placement.preference import DEFAULT, Preference
from gpumanager.scheduler.claims.objects import (
    AskingClaim,
    holder_of,
    offered,
    read_asking_claim,
    read_class,
)
from gpumanager.scheduler.node import NOTHING_OFFERED, Offered
from gpumanager.scheduler.scoring.pod_shape import PodShape, claim_shape_of
from gpumanager.supervisor import SkippedErrors, Start

API: Final = "/apis/resource.k8s.io/v1"
BY_DRIVER: Final = f"spec.driver={CLAIM_DRIVER}"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Objects of one kind, for an informer. changed: gets each by its name; None: it is gone."""

    path: str
    known: dict[str, Any]
    read: Callable[[Any], Any]
    changed: Callable[[str, Any], None]

    def name(self, item: Any) -> str:
        metadata = item["metadata"]
        return f"{metadata.get('namespace', '')}/{metadata['name']}"

    def put(self, item: Any) -> None:
        self.changed(self.name(item), self.read(item))

    def remove(self, item: Any) -> None:
        self.changed(self.name(item), None)

    def only(self, names: set[str]) -> None:
        for name in self.known.keys() - names:
            self.changed(name, None)


class ClaimCache:
    """Keeps claims and slices. offer: gets what a node's slice offers, whenever that changes."""

    def __init__(
        self, offer: Callable[[str, Offered], None], preference: Preference = DEFAULT
    ) -> None:
        self._offer = offer
        self._preference = preference
        self._slices: dict[str, NodeSlice] = {}
        self._claims: dict[str, AskingClaim] = {}
        self._classes: dict[str, Preference] = {}
        """Classes of our driver, and how each wants a node to be chosen."""
        self._on: dict[str, dict[str, tuple[AllocatedDevice, ...]]] = {}
        """What claims hold, by node and claim."""
        self.stores = {
            "resource slices": ObjectStore(
                f"{API}/resourceslices", self._slices, read_slice, self._slice
            ),
            "resource claims": ObjectStore(
                f"{API}/resourceclaims", self._claims, read_asking_claim, self._claim
            ),
            "device classes": ObjectStore(
                f"{API}/deviceclasses", self._classes, read_class, self._class
            ),
        }

    def tasks(self, api: KubeClient, skipped: SkippedErrors | None = None) -> dict[str, Start]:
        """Return what follows the API server, by name."""
        selected = {"resource slices": BY_DRIVER}
        return {
            name: Informer(api, store, fields=selected.get(name, ""), skipped=skipped).run
            for name, store in self.stores.items()
        }

    def shape_of(self, pod: PodView, *, waiting: bool = False) -> PodShape | None:
        """Return what its claims ask of our driver; None where that is nothing, or not known yet.

        waiting: only of those that are not allocated.
        """
        known = [self._claims.get(f"{pod.namespace}/{name}") for name in pod.claims]
        claims = [one for one in known if one and not (waiting and one.allocated)]
        rows = (row for one in claims for row in one.requests)
        requests = tuple(request for name, request in rows if f"/{name}" in self._classes)
        if not requests or None in known:
            return None
        preference = self._preference
        for one in claims:
            for name in dict.fromkeys(name for name, _ in one.requests):
                preference = self._classes.get(f"/{name}", DEFAULT).over(preference)
            preference = one.preference.over(preference)
        return claim_shape_of(pod, requests, preference)

    def _slice(self, name: str, said: NodeSlice | None) -> None:
        before = self._slices.pop(name, None)
        if said is not None:
            self._slices[name] = said
        for node in {one.node for one in (before, said) if one is not None}:
            self._refresh(node)

    def _claim(self, name: str, said: AskingClaim | None) -> None:
        before = self._claims.pop(name, None)
        if said is not None:
            self._claims[name] = said
        had, has = before.held if before else (), said.held if said else ()
        if before and said and (had, before.pods) == (has, said.pods):
            return
        for node in {one.pool for one in (*had, *has)}:
            on = self._on.setdefault(node, {})
            on.pop(name, None)
            if here := tuple(one for one in has if one.pool == node):
                on[name] = here
            if not on:
                del self._on[node]
            self._refresh(node)

    def _class(self, name: str, said: Preference | None) -> None:
        self._classes.pop(name, None)
        if said is not None:
            self._classes[name] = said

    def _refresh(self, node: str) -> None:
        on = self._on.get(node, {})
        held = [one for some in on.values() for one in some]
        one = next((one for one in self._slices.values() if one.node == node), None)
        if one is None:
            self._offer(node, NOTHING_OFFERED)
            return
        holders = [holder_of(name, self._claims[name], some, one) for name, some in on.items()]
        self._offer(node, offered(one, held, holders))
