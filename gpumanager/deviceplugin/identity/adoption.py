"""Grants that our journal does not have and others prove: taken up again. Pure.

The kubelet's books are exact about device IDs, so what they give to a container is held by it, on
the GPUs that our answer named. Where the kubelet has lost its books too, running containers and the
directories of allocations still say how much of which GPU is in use: as much is held. Nothing is
given out again because nobody remembers it: what is held too long is released when its pod is seen
to be gone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from gpumanager.deviceplugin.device_ledger import holders_of, on_gpus
from gpumanager.deviceplugin.identity.device_checkpoint import given
from gpumanager.deviceplugin.identity.evidence import (
    Evidence,
    Key,
    allocation_of,
    mounted_allocation,
)
from gpumanager.deviceplugin.identity.resolution import in_order
from gpumanager.deviceplugin.identity.verdict import Checkpoint, has_ended
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.device_ids import ORIGINAL
from gpumanager.grants.grant import (
    Claimant,
    DevicePluginSource,
    EvidenceSource,
    Grant,
    State,
    shares_of,
)
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.edits import ENV_ALLOCATION, ENV_GPUS, ENV_VISIBLE
from gpumanager.isolation.table import isolation_of
from gpumanager.kube.plan import ceiling
from gpumanager.limits.values import Limit
from gpumanager.names import ANNOTATION_DEVICE, VCORE, VMEMORY
from gpumanager.placement.values import Request
from gpumanager.runtime.status import LiveContainer
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

BY_KUBELET: Final = "adopted: the kubelet's checkpoint gives it these devices"
BY_CONTAINER: Final = "adopted: it runs with this allocation"
BY_DIRECTORY: Final = "adopted: its directory is there, and nobody can say whose it is"


def unrecorded(known: tuple[Grant, ...], checkpoint: Checkpoint) -> tuple[Key, ...]:
    """Containers to which the kubelet has given cores of which the journal knows nothing."""
    cores = {(h.pod_uid, h.container): h.ids for h in checkpoint if h.resource == VCORE}
    recorded: dict[frozenset[str], set[PodUID | None]] = {}
    for one in holders_of(known, frozenset().union(*cores.values())):
        recorded.setdefault(frozenset(one.ids.core_ids), set()).add(
            one.pod.uid if one.pod else None
        )
    return tuple(
        key for key, ids in cores.items() if recorded.get(ids, set()).isdisjoint({None, key[0]})
    )


def adopt_booked(
    ledger: Ledger, known: tuple[Grant, ...], evidence: Evidence, now: float
) -> tuple[Grant, ...]:
    """What the kubelet's books give to pods that have not ended, and the journal lacks.

    It takes the place of what is known by the same name: a half, or what was held without a proof.
    """
    checkpoint = evidence.checkpoint or ()
    drafts = (
        _booked(ledger, key, evidence, now)
        for key in unrecorded(known, checkpoint)
        if not has_ended(key[0], evidence.view)
    )
    proved = [a for a in known if a.state is State.CONFIRMED and not is_evidence(a)]
    names = {a.id for a in proved}
    named = (_unlike(a, proved) for a in drafts if a is not None)
    return tuple(a for a in named if a.id not in names)


def adopt_used(
    topology: Topology, known: tuple[Grant, ...], evidence: Evidence, now: float
) -> tuple[Grant, ...]:
    """What running containers and directories say is in use, where the kubelet's books do not."""
    found: list[Grant] = []
    for draft in _used(topology, evidence, now):
        taken = (*known, *found)
        named = _unlike(draft, taken)
        if all(a.id != named.id for a in taken):
            found.append(named)
    return tuple(found)


def _booked(ledger: Ledger, key: Key, evidence: Evidence, now: float) -> Grant | None:
    theirs = [h for h in evidence.checkpoint or () if (h.pod_uid, h.container) == key]
    held = {h.resource: h.ids for h in theirs}
    # What it was given: as the kubelet keeps it, or as the runtime started it.
    envs = given(theirs).get(key, {})
    if ENV_ALLOCATION not in envs:
        live = [one for one in evidence.live or () if _key(one) == key]
        started = ((one, name) for one in live if (name := allocation_of(one)) is not None)
        envs = next(({**one.envs, ENV_ALLOCATION: name} for one, name in started), {})
    cores = _ours(ledger, held.get(VCORE, ()), envs)
    if not cores:
        return None  # of gpu-manager
    memory = _ours(ledger, held.get(VMEMORY, ()), envs)
    request = Request(len(cores), len(memory))
    named = AllocationID(envs.get(ENV_ALLOCATION) or _made_up(key))
    gpus = _given(envs)
    if len(gpus) != max(1, request.whole_gpus):
        # None are known, or a container says more than it was given: the kubelet took the IDs that
        # we preferred, which name them.
        ids = ledger.ids
        gpus = tuple(dict.fromkeys(ids.gpu_of(one).uuid for one in cores if one in ids))
    draft = _draft(named, key, request, evidence, now)
    source = DevicePluginSource(draft.ids.admission, cores, memory)
    return on_gpus(
        replace(draft, source=source, why=BY_KUBELET), gpus, exclusive=bool(request.whole_gpus)
    )


def _made_up(key: Key) -> AllocationID:
    return AllocationID(f"adopted-{key[0]}-{key[1]}"[:64])


def _unlike(draft: Grant, taken: Iterable[Grant]) -> Grant:
    """Under a name of its own where it names another pod's grant: its environment is its own."""
    if draft.pod is None:
        return draft
    owners = {a.pod.uid for a in taken if a.id == draft.id and a.pod}
    if owners <= {draft.pod.uid}:
        return draft
    return replace(draft, id=_made_up((draft.pod.uid, draft.pod.container)))


def _ours(ledger: Ledger, ids: Collection[str], envs: Mapping[str, str]) -> tuple[str, ...]:
    """Without gpu-manager's, unless we have given them. envs: what their container was given."""
    return in_order(
        ledger, [i for i in ids if ENV_ALLOCATION in envs or not i.startswith(ORIGINAL)]
    )


def _used(topology: Topology, evidence: Evidence, now: float) -> Iterator[Grant]:
    for live in evidence.live or ():
        name = allocation_of(live)
        if name is None:
            continue
        mounted = mounted_allocation(live)
        if mounted is None and name in evidence.directories:
            name = _made_up(_key(live))  # whole GPUs have no directory: it is another pod's
        limits = evidence.directories.get(mounted, ()) if mounted else ()
        # As the kubelet annotated the container; its environment may say otherwise.
        devices = live.annotations.get(ANNOTATION_DEVICE, "").split(",")
        gpus = (
            tuple(limit.gpu for limit in limits)
            or tuple(gpu.uuid for gpu in topology.gpus if f"/dev/nvidia{gpu.minor}" in devices)
            or tuple(uuid for uuid in _given(live.envs) if topology.by_uuid(uuid))
        )
        request = _request(limits) if limits else Request(CORES_PER_GPU * max(1, len(gpus)), 0)
        draft = _draft(name, _key(live), request, evidence, now)
        yield _in_amounts(draft, request, gpus, BY_CONTAINER)
    for name, limits in evidence.directories.items():
        if limits and not evidence.complete:
            draft = _draft(name, None, _request(limits), evidence, now)
            yield replace(
                _in_amounts(draft, _request(limits), (limit.gpu for limit in limits), BY_DIRECTORY),
                ceiling=limits[0].ceiling,
            )


def _in_amounts(draft: Grant, request: Request, gpus: Iterable[GpuUUID], why: str) -> Grant:
    """As much as is in use; together with others it may be more than a GPU has."""
    exclusive = bool(request.whole_gpus)
    shares = shares_of(gpus, request.cores, request.blocks, exclusive=exclusive)
    return replace(draft, shares=shares, isolation=isolation_of(shares), why=why)


def _request(limits: tuple[Limit, ...]) -> Request:
    return Request(limits[0].cores, -(-limits[0].memory // MEMORY_BLOCK))


def _draft(
    name: AllocationID, key: Key | None, request: Request, evidence: Evidence, now: float
) -> Grant:
    """Its pod, and since when; not yet how much of what."""
    pod = next((p for p in evidence.view or () if key and p.uid == key[0]), None)
    return Grant(
        id=name,
        source=EvidenceSource(f"adopted-{key[0]}" if key else str(name)),
        evaluator=request.evaluator,
        time=now,
        state=State.CONFIRMED if key else State.ANSWERED,
        ceiling=ceiling(pod.annotations) if pod else None,
        pod=_claimant(key, evidence) if key else None,
    )


def _claimant(key: Key, evidence: Evidence) -> Claimant:
    for pod in evidence.view or ():
        if pod.uid == key[0]:
            return Claimant(key[0], pod.namespace, pod.name, key[1])
    for one in evidence.live or ():
        if one.container.pod_uid == key[0]:
            return Claimant(key[0], one.container.pod_namespace, one.container.pod_name, key[1])
    return Claimant(key[0], "", "", key[1])


def _key(live: LiveContainer) -> Key:
    return live.container.pod_uid, live.container.name


def _given(envs: Mapping[str, str]) -> tuple[GpuUUID, ...]:
    """Return the GPUs of our answer, be they here or not."""
    if ENV_ALLOCATION not in envs:
        return ()
    uuids = envs.get(ENV_GPUS) or envs.get(ENV_VISIBLE, "")
    return tuple(GpuUUID(uuid) for uuid in uuids.split(",") if uuid)


def is_evidence(grant: Grant) -> bool:
    """Of it only amounts are known, and no device IDs."""
    return isinstance(grant.source, EvidenceSource)
