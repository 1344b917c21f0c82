"""Recovery after a start: read the journal, and add grants that other sources prove.

A damaged journal is kept under another name, which is logged as an error; its readable grants
stay. Where it is damaged or absent, or lacks a container that the kubelet's checkpoint has, the
evidence is gathered: the kubelet's checkpoint, the original's checkpoint, the running containers,
the directories of allocations. What may be in use counts as granted, until its pod is gone.

Only this happens before registration. Sockets and limits are created again later: containers keep
the limits they have, and the shim of one that has just started retries.
"""

import logging

from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.adoption import adopt_booked, adopt_used, unrecorded
from gpumanager.deviceplugin.identity.evidence import (
    Evidence,
    PodLister,
    directories,
    list_live_containers,
    lived_on,
)
from gpumanager.grants.node import Node
from gpumanager.names import CLAIMS, DEVICE_PLUGINS

logger = logging.getLogger(__name__)


async def recover(node: Node, deps: Dependencies, lister: PodLister) -> None:
    """Load or rebuild every grant, and write it to disk; never refuses to start."""
    store = node.store
    whole = await store.load()
    checkpoint, known = await deps.books.read(), node.grants(DEVICE_PLUGINS)
    enough = whole and not unrecorded(known, checkpoint or ())
    if not enough:
        view, now = await lister.list(), deps.clock()
        live = await list_live_containers(deps.runtime)
        limits = directories(deps.isolation)
        evidence = Evidence(checkpoint, live, limits, view=view)
        found = list(adopt_booked(node.ledger(DEVICE_PLUGINS), known, evidence, now))
        for one in deps.inherited(node.topology, evidence, now):
            if all(one.id != a.id for a in (*known, *found)):
                found.append(one)
        found += adopt_used(node.topology, (*known, *found), evidence, now)
        claimed = {one.id for one in node.grants(CLAIMS)}
        found = [one for one in found if one.id not in claimed]
        store.journal = store.journal.put(*found)
        store.lingering = lived_on(evidence.live or (), node.grants(DEVICE_PLUGINS))
        for one in found:
            logger.warning(
                "allocation %s of %s restored: %s (%d cores and %d blocks of %s)",
                *(one.id, one.pod or "an unknown pod", one.why),
                *(one.cores, one.blocks, ", ".join(one.gpus) or "no GPU of this node"),
            )
    await store.forget()
    if not enough:
        await store.tidy()
    if whole:
        # An agent stopped between making files and journalling the grant, or removing them.
        there = {*deps.isolation.allocations(), *deps.isolation.handed_over()}
        for name in there - set(store.journal.grants):
            logger.info("removing files of unfinished allocation %s", name)
            await store.close(name)
