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

from gpumanager.deviceplugin.surroundings import Surroundings
from gpumanager.grants.journal import Allocation
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.promises import Promises
from gpumanager.recovery.adoption import adopt_booked, adopt_used, unrecorded
from gpumanager.recovery.evidence import Evidence, Eyes, directories, lived_on, who_lives
from gpumanager.recovery.inheritance import (
    Inherited,
    OriginalUnreadable,
    inherit,
    read_original,
)

logger = logging.getLogger(__name__)


async def recover(ledger: Ledger, promises: Promises, around: Surroundings, eyes: Eyes) -> None:
    """Every promise in force is known, and on the disk; never refuses to start."""
    whole = await promises.load()
    checkpoint = await around.books.read()
    enough = whole and not unrecorded(promises.live(), checkpoint or ())
    if not enough:
        seen = Evidence(checkpoint=checkpoint, view=await eyes.look())
        evidence = await _gather(around, seen)
        found = held_besides(ledger, promises.live(), evidence, _original(around), around.clock())
        promises.journal = promises.journal.put(*found)
        promises.lingering = lived_on(evidence.live or (), promises.live())
        _say(found)
    await promises.forget()
    if not enough:
        await promises.tidy()
    if whole:
        await _clear(promises, around)


def held_besides(
    ledger: Ledger,
    known: tuple[Allocation, ...],
    evidence: Evidence,
    original: tuple[Inherited, ...],
    now: float,
) -> tuple[Allocation, ...]:
    """What is held besides what is known, as far as the evidence goes. Pure."""
    found = list(adopt_booked(ledger, known, evidence, now))
    for one in inherit(ledger.topology, original, evidence, now):
        if all(one.allocation != a.allocation for a in (*known, *found)):
            found.append(one)
    return (*found, *adopt_used(ledger, (*known, *found), evidence, now))


async def _clear(promises: Promises, around: Surroundings) -> None:
    """Directories of which the journal says nothing were made by an agent that died meanwhile."""
    for name in set(around.virtual.allocations()) - set(promises.journal.allocations):
        logger.info("removing what is left of allocation %s", name)
        await promises.close(name)


async def _gather(around: Surroundings, known: Evidence) -> Evidence:
    live = await who_lives(around.runtime)
    checkpoint = known.checkpoint
    if checkpoint is None:
        uids = {
            (one.container.pod_namespace, one.container.pod_name): one.container.pod_uid
            for one in live or ()
        }
        checkpoint = await around.books.listed(known.view, uids) or None
    return replace(
        known,
        checkpoint=checkpoint,
        envs=await around.books.envs(),
        live=live,
        directories=directories(around.virtual),
    )


def _original(around: Surroundings) -> tuple[Inherited, ...]:
    if around.original is None:
        return ()
    try:
        return read_original(around.original)
    except OriginalUnreadable as error:
        logger.error("%s", error)  # noqa: TRY400 - it says all there is to say
        return ()


def _say(found: Iterable[Allocation]) -> None:
    for one in found:
        logger.warning(
            "allocation %s of %s is held again: %s (%d cores and %d blocks of %s)",
            *(one.allocation, one.pod or "nobody known", one.why),
            *(one.cores, one.blocks, ", ".join(one.gpus) or "no GPU of this node"),
        )
