"""After a start: the journal is taken up, and what it does not know and others prove is held.

A journal that cannot be used is set aside under a name, said loudly, and whatever is whole in it is
kept. Where it is damaged or absent, or the kubelet's books have somebody whom it has not, the
evidence is gathered: the kubelet's checkpoint (or, without one, PodResources, which is harmless
before we are registered), the original's checkpoint, the running containers, the directories of
allocations. What cannot be proved free is held; it is released when its pod is seen to be gone.

That is all the kubelet has to wait for. Sockets and limits of what was taken up are made anew when
it knows of us: containers keep the limits they have, and who has just started asks again.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace

from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ledger import DeviceLedger
from gpumanager.deviceplugin.identity.adoption import adopt_booked, adopt_used, unrecorded
from gpumanager.deviceplugin.identity.evidence import (
    Evidence,
    PodLister,
    directories,
    lived_on,
    who_lives,
)
from gpumanager.grants.grant import Grant
from gpumanager.grants.store import GrantStore
from gpumanager.recovery.legacy_checkpoint import (
    Inherited,
    OriginalUnreadable,
    inherit,
    read_original,
)

logger = logging.getLogger(__name__)


async def recover(
    ledger: DeviceLedger, store: GrantStore, deps: Dependencies, lister: PodLister
) -> None:
    """Every grant in force is known, and on the disk; never refuses to start."""
    whole = await store.load()
    checkpoint = await deps.books.read()
    enough = whole and not unrecorded(store.live(), checkpoint or ())
    if not enough:
        seen = Evidence(checkpoint=checkpoint, view=await lister.list())
        evidence = await _gather(deps, seen)
        found = held_besides(ledger, store.live(), evidence, _original(deps), deps.clock())
        store.journal = store.journal.put(*found)
        store.lingering = lived_on(evidence.live or (), store.live())
        _say(found)
    await store.forget()
    if not enough:
        await store.tidy()
    if whole:
        await _clear(store, deps)


def held_besides(
    ledger: DeviceLedger,
    known: tuple[Grant, ...],
    evidence: Evidence,
    original: tuple[Inherited, ...],
    now: float,
) -> tuple[Grant, ...]:
    """What is held besides what is known, as far as the evidence goes. Pure."""
    found = list(adopt_booked(ledger, known, evidence, now))
    for one in inherit(ledger.topology, original, evidence, now):
        if all(one.id != a.id for a in (*known, *found)):
            found.append(one)
    return (*found, *adopt_used(ledger.topology, (*known, *found), evidence, now))


async def _clear(store: GrantStore, deps: Dependencies) -> None:
    """Directories of which the journal says nothing were made by an agent that died meanwhile."""
    for name in set(deps.isolation.allocations()) - set(store.journal.grants):
        logger.info("removing the leftover directory of allocation %s", name)
        await store.close(name)


async def _gather(deps: Dependencies, known: Evidence) -> Evidence:
    live = await who_lives(deps.runtime)
    checkpoint = known.checkpoint
    if checkpoint is None:
        uids = {
            (one.container.pod_namespace, one.container.pod_name): one.container.pod_uid
            for one in live or ()
        }
        checkpoint = await deps.books.listed(known.view, uids) or None
    return replace(
        known,
        checkpoint=checkpoint,
        envs=await deps.books.envs(),
        live=live,
        directories=directories(deps.isolation),
    )


def _original(deps: Dependencies) -> tuple[Inherited, ...]:
    if deps.original is None:
        return ()
    try:
        return read_original(deps.original)
    except OriginalUnreadable as error:
        logger.error("%s", error)  # noqa: TRY400 - it says all there is to say
        return ()


def _say(found: Iterable[Grant]) -> None:
    for one in found:
        logger.warning(
            "allocation %s of %s restored: %s (%d cores and %d blocks of %s)",
            *(one.id, one.pod or "an unknown pod", one.why),
            *(one.cores, one.blocks, ", ".join(one.gpus) or "no GPU of this node"),
        )
