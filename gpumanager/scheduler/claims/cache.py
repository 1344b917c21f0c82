"""Cache of the cluster's claims and ResourceSlices, for scoring nodes.

kube-scheduler accounts for claims; this cache only serves scores. It may be slightly stale, which
at worst makes a score less good. Selectors and constraints of a claim are not evaluated:
kube-scheduler does that before it asks for scores. Of several alternatives the first one counts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.claims import (
    AllocatedDevice,
    NodeSlice,
    NotAClaim,
    OfferedGpu,
    is_allocated,
    list_configs,
    list_devices,
    list_requests,
    list_selectors,
    list_users,
    read_slice,
    requested,
)
from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer, ObjectStore
from gpumanager.kube.pod import PodView
from gpumanager.names import CLAIM_DRIVER
from gpumanager.placement.preference import DEFAULT, Preference, read_preference
from gpumanager.placement.values import FreeGpu, Request
from gpumanager.scheduler.node import NOTHING_OFFERED, ClaimHolder, Offered
from gpumanager.scheduler.scoring.pod_shape import NO_PREFERENCE, PodShape, claim_shape_of
from gpumanager.supervisor import SkippedErrors, Start
from gpumanager.units import CORES_PER_GPU

API: Final = "/apis/resource.k8s.io/v1"
CLAIM_DEVICES: Final = 32
"""The most of one claim, by Kubernetes' own validation."""


@dataclass(frozen=True, slots=True)
class AskingClaim:
    """requests: with the DeviceClass of each. held: what it was allocated, if it was.

    pods: names of those that it is reserved for.
    """

    requests: tuple[tuple[str, Request], ...]
    preference: Preference = NO_PREFERENCE
    allocated: bool = False
    held: tuple[AllocatedDevice, ...] = ()
    pods: tuple[str, ...] = ()


class ClaimCache:
    """Keeps claims and slices. offer: gets what a node's slice offers, whenever that changes."""

    def __init__(
        self, offer: Callable[[str, Offered], None], preference: Preference = DEFAULT
    ) -> None:
        self._offer = offer
        self._preference = preference
        self._on: dict[str, dict[str, tuple[AllocatedDevice, ...]]] = {}
        """What claims hold, by node and claim."""
        self.stores: dict[str, ObjectStore[Any]] = {
            "resource slices": ObjectStore(f"{API}/resourceslices", read_slice, self._slice),
            "resource claims": ObjectStore(f"{API}/resourceclaims", read_asking_claim, self._claim),
            "device classes": ObjectStore(f"{API}/deviceclasses", read_class),
        }
        self._slices: dict[str, NodeSlice] = self.stores["resource slices"].known
        self._claims: dict[str, AskingClaim] = self.stores["resource claims"].known
        self._classes: dict[str, Preference] = self.stores["device classes"].known
        """Classes of our driver, and how each wants a node to be chosen."""

    def tasks(self, api: KubeClient, skipped: SkippedErrors | None = None) -> dict[str, Start]:
        """Return what follows the API server, by name."""
        selected = {"resource slices": f"spec.driver={CLAIM_DRIVER}"}
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

    def _slice(self, _name: str, before: NodeSlice | None, said: NodeSlice | None) -> None:
        for node in {one.node for one in (before, said) if one is not None}:
            self._refresh(node)

    def _claim(self, name: str, before: AskingClaim | None, said: AskingClaim | None) -> None:
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

    def _refresh(self, node: str) -> None:
        on = self._on.get(node, {})
        held = [one for some in on.values() for one in some]
        one = next((one for one in self._slices.values() if one.node == node), None)
        if one is None:
            self._offer(node, NOTHING_OFFERED)
            return
        holders = [holder_of(name, self._claims[name], some, one) for name, some in on.items()]
        self._offer(node, offered(one, held, holders))


def read_asking_claim(item: Any) -> AskingClaim:
    """Read a claim; raises NotAClaim."""
    rows: list[tuple[str, Request]] = []
    for asked in (one for tried in list_requests(item).values() for one in tried[:1]):
        if asked.admin or asked.count is None:
            continue
        count = min(asked.count, CLAIM_DEVICES)
        cores = CORES_PER_GPU if asked.cores is None else max(1, asked.cores)
        if cores < CORES_PER_GPU and asked.blocks is not None:
            rows += [(asked.device_class, Request(cores, asked.blocks))] * count
        else:  # a request without cores or without memory gets the whole GPU
            rows.append((asked.device_class, Request(CORES_PER_GPU * count, asked.blocks or 0)))
    return AskingClaim(
        tuple(rows),
        _preference(requested(item)),
        is_allocated(item),
        tuple(one for one in list_devices(item) if not one.admin),
        tuple(one.name for one in list_users(item)),
    )


def read_class(device_class: Any) -> Preference | None:
    """Return what a DeviceClass of our driver says of how a node is chosen; None for another's,
    of which no selector names our driver."""
    spec = device_class.get("spec") or {}
    ours = any(CLAIM_DRIVER in text for text in list_selectors(spec))
    return _preference(spec) if ours else None


def holder_of(
    name: str, claim: AskingClaim, held: Iterable[AllocatedDevice], node: NodeSlice
) -> ClaimHolder:
    """Return what a claim holds by GPU: two of its requests may meet on one."""
    gpus = {one.name: one for one in node.gpus}
    unknown = OfferedGpu(node.node, "", GpuUUID(""), FreeGpu(0))
    uses: dict[GpuUUID, tuple[int, int]] = {}
    for one in held:
        gpu = gpus.get(one.name, unknown)
        (cores, blocks), before = one.amounts(gpu.free.memory), uses.get(gpu.uuid, (0, 0))
        uses[gpu.uuid] = before[0] + cores, before[1] + blocks
    return ClaimHolder(name, claim.pods, tuple((uuid, *much) for uuid, much in uses.items()))


def offered(
    node: NodeSlice, held: Iterable[AllocatedDevice], holders: Iterable[ClaimHolder] = ()
) -> Offered:
    """Return what is left of the slice's devices, in its order."""
    gpus = node.less(held)
    return Offered(
        next((one.model for one in gpus if one.model), ""),
        tuple(one.free._replace(cores=0, blocks=0) if one.closing else one.free for one in gpus),
        tuple(holders),
    )


def _preference(devices: Any) -> Preference:
    """Return the policy of the last VcudaConfig that has one, as of the pod's annotation.

    Parameters that the driver refuses prefer nothing: what the claim holds counts all the same.
    """
    try:
        said = [config.policy for _, config in list_configs(devices) if config.policy]
    except NotAClaim:
        return NO_PREFERENCE
    return read_preference(said[-1]) if said else NO_PREFERENCE
