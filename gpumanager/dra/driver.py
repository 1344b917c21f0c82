"""The DRA driver: prepares claims, and keeps their grants.

It handles one claim at a time, under one lock. A grant is in the journal before the response, and
the response is made from the journal alone: the kubelet gets the same bytes for each retry, even
after the claim is deleted. A crash in between leaves a directory or a file that the journal does
not know; `repair` or the next start removes it.

    prepare      directory and socket, CDI file, journal, response
    unprepare    CDI file, journal, directory
"""

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.cluster import ClaimCluster
from gpumanager.dra.plan import TO_DO, PreparedNode, plan
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import ClaimedDevice, ClaimSource, Grant
from gpumanager.grants.node import Node
from gpumanager.grants.refusals import Refused, RetryLater
from gpumanager.ids import AllocationID
from gpumanager.isolation.cdi import KIND, CdiDevice, CdiFiles, cdi_name, spec
from gpumanager.isolation.table import Isolations
from gpumanager.kube.claims import (
    AllocatedDevice,
    NotAClaim,
    PodClaims,
    ResourceClaim,
    base,
    device_name,
)
from gpumanager.names import CLAIMS, DEVICE_PLUGINS

log = logging.getLogger(__name__)

T = TypeVar("T")

_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ClaimRef(NamedTuple):
    """A claim, as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"


class ClaimDriver:
    """Call `take_up` once, and `serve_again` as soon as there is time.

    pool: the node's name. clock: seconds since 1970.
    """

    def __init__(
        self,
        node: Node,
        *,
        isolation: Isolations,
        claims: ClaimCluster,
        cdi: CdiFiles,
        pool: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.node, self._isolation, self._claims = node, isolation, claims
        self._cdi, self._pool, self._clock = cdi, pool, clock
        self._store, self._lock = node.store, node.lock
        self._served: set[str] = set()
        self._running: set[asyncio.Task[Any]] = set()
        self._unserved: dict[str, str] = {}
        """Why not, as logged last."""
        self._asked: list[ClaimRef] = []
        """Claims that are being prepared; without those that were unprepared meanwhile."""
        self.unused: dict[str, int] = {}
        """How many passes of the reconciler in a row found no use of a claim; counted anew once the
        kubelet asks for it."""
        self.whole = False
        """Whether the journal has all that this node ever granted."""

    def live(self) -> tuple[Grant, ...]:
        """Return the grants of claims."""
        return self.node.grants(CLAIMS)

    async def adopt(self, topology: Topology) -> None:
        """Use these GPUs from now on, and serve the claims of a GPU that has come back."""
        await self.node.adopt(topology)
        await self._serve_missing()

    async def take_up(self) -> None:
        """Load every grant in force, after a start. From now on the kubelet is answered."""
        await self.load()
        self.node.taken_up.set()

    async def load(self) -> None:
        """Load every grant in force, after a start; calls of the kubelet wait still."""
        async with self._lock:
            self.whole = await self._store.load()
            if not self.whole:
                # What the CDI files were made of is held again: containers run with it. Nothing is
                # removed: whose it is may not be known.
                known = {one.id for one in self.live()}
                if lost := [one for one in self._cdi.grants() if one.id not in known]:
                    await self._store.put(*lost)
                for one in lost:
                    log.warning("allocation %s restored from its CDI file: %s", one.id, one.source)
            await self._clear(running=())
            await self._store.tidy()
        for holder in sorted(set(self.node.closed(CLAIMS).values())):
            log.info(
                "not offering a GPU to claims, because device plugins still have it: %s", holder
            )

    async def serve_again(self) -> None:
        """Hold everything that was taken up, whichever interface asked for it.

        CDI files are made anew: they lie in memory, which a reboot empties, and name directories
        of a driver that may have been replaced; the kubelet does not ask again for either.
        """
        await self._serve_missing()
        for other in self.node.grants(DEVICE_PLUGINS):
            async with self._lock:
                await self._store.serve_again(other.id)

    async def repair(self, running: Collection[AllocationID] | None = None) -> None:
        """Try again what a failing disk has left: claims that are not served, and whatever could
        not be removed.

        running: the allocations that containers run with; None where that is not known, and then no
        directory is removed. Where the journal was lost, nothing is before all of them are known.
        """
        await self._serve_missing()
        async with self._lock:
            if running is not None and self.node.journal.grants.keys() >= set(running):
                self.whole = True
            try:
                await self._clear(running)
            except OSError as error:
                log.warning("cannot remove files of earlier claims yet: %s", error)

    async def prepare(self, claim: ClaimRef) -> tuple[pb.Device, ...] | Refused:
        """Return the devices of a claim, or why it has none and what its reader can do.

        It goes on to its end although the caller gives up, and then has the answer ready.

        It waits until the journal is loaded: the agent before this one may still have it. Raises
        RetryLater, JournalUnwritable, and what back ends and the disk raise.
        """
        await self.node.taken_up.wait()
        if _UID.fullmatch(claim.uid):
            answer = await self._to_its_end(self._prepare(claim))
        else:
            answer = Refused(f"{claim.uid[:40]!r} is no UID of a claim", "invalid")
        if isinstance(answer, Refused) and answer.reason in TO_DO:
            return replace(answer, text=f"{answer.text}. {TO_DO[answer.reason]}")
        return answer

    async def unprepare(self, claim: ClaimRef) -> None:
        """Release a claim; safe to repeat, also for an unknown one. Raises JournalUnwritable,
        OSError."""
        await self.node.taken_up.wait()
        await self._to_its_end(self._unprepare(claim))

    async def finished(self) -> None:
        """Wait until the calls that went on to their end have come to it."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def reclaim(self, claim: ClaimRef, passes: int) -> bool:
        """Unprepare it, unless it was unused for fewer passes. Return whether it was unprepared.
        Raises as `unprepare`."""
        return await self._to_its_end(self._unprepare(claim, passes))

    async def _prepare(self, claim: ClaimRef) -> tuple[pb.Device, ...] | Refused:
        if await self._is_allocated_otherwise(claim):
            return Refused(
                f"claim {claim} was allocated other devices than it has here, and was not "
                "unprepared: it is released once nothing runs with it",
                "not-free",
            )
        self.unused.pop(claim.uid, None)
        async with self._lock:
            if held := self._of(claim.uid):
                return await self._again(held)
        self._asked.append(claim)
        try:
            found = await self._claims.claim(*claim)
            pods = [
                await self._claims.pod(found.namespace, one.name, one.uid)
                for one in found.reserved_for
            ]
            async with self._lock:
                if held := self._of(claim.uid):  # the kubelet asked twice
                    return await self._again(held)
                if claim not in self._asked:
                    # The API server took its time, the kubelet gave up, and the pod was deleted:
                    # nobody would unprepare it a second time.
                    return Refused(f"claim {claim} was unprepared meanwhile", "invalid")
                return await self._grant(found, pods)
        except NotAClaim as error:
            return Refused(str(error), "invalid")
        finally:
            if claim in self._asked:
                self._asked.remove(claim)

    async def _is_allocated_otherwise(self, claim: ClaimRef) -> bool:
        """Return whether it was freed and allocated anew while the kubelet, or its checkpoint, was
        away: the scheduler may have given what it held to others."""
        held, known = self._of(claim.uid), self._claims.allocated(claim.uid)
        if not held or known is None or as_granted(known, held):
            return False
        with contextlib.suppress(RetryLater):
            found = await self._claims.reread(*claim)
            return bool(found) and not as_granted(found, held)
        return False

    async def _grant(
        self, claim: ResourceClaim, pods: Sequence[PodClaims | None]
    ) -> tuple[pb.Device, ...] | Refused:
        sources = (one.source for one in self.live())
        granted = (one for one in sources if isinstance(one, ClaimSource))
        requests = {(one.namespace, one.name): one.requests for one in granted}
        ledger = self.node.ledger(CLAIMS)
        users = zip(claim.reserved_for, pods, strict=True)  # without pods that are gone
        planned = plan(
            PreparedNode(self._pool, ledger, self.live(), {**requests, **self._claims.requests()}),
            replace(claim, reserved_for=tuple(one for one, pod in users if pod)),
            [pod for pod in pods if pod],
            self._clock(),
            lambda: AllocationID(secrets.token_hex(8)),
        )
        if isinstance(planned, Refused):
            return planned
        try:
            await self._hold(planned)
            await self.node.grant(*planned)
        except BaseException:
            self._served.discard(claim.uid)
            with contextlib.suppress(OSError):  # what stays is removed by `repair`
                self._cdi.remove(claim.uid)
            for one in planned:
                await self._store.close(one.id)
            raise
        self.node.notify()
        return self._answer(planned)

    async def _again(self, held: tuple[Grant, ...]) -> tuple[pb.Device, ...]:
        uid = uid_of(held[0])
        if uid not in self._served or uid not in self._cdi:
            await self._hold(held)
        return self._answer(held)

    async def _hold(self, grants: tuple[Grant, ...]) -> None:
        """Listen at their sockets, and write their CDI file.

        The file stays as it is while a GPU is missing: its containers may come back with it. The
        claim is served only once all of its GPUs are there.
        """
        uid, devices, missing = uid_of(grants[0]), list[CdiDevice](), False
        for grant in grants:
            gpus = tuple(gpu for gpu in self.node.topology.gpus if gpu.uuid in grant.shares)
            missing = missing or len(gpus) < len(grant.shares)
            edits = await self._isolation.prepare(grant, gpus)
            nodes = {device_name(gpu.uuid): f"/dev/nvidia{gpu.minor}" for gpu in gpus}
            # A CDI device for each device of the claim, with the node of its own GPU and all that
            # is common: a container may have any of them, or all.
            for index, device in enumerate(devices_of(grant)):
                others = set(nodes.values()) - {nodes.get(device.name)}
                visible = tuple(one for one in edits.devices if one.container_path not in others)
                devices.append(
                    CdiDevice(cdi_name(grant.id, index), replace(edits, devices=visible))
                )
        if not (missing and uid in self._cdi):
            self._cdi.write(uid, spec(devices, grants))
        if not missing:
            self._served.add(uid)

    def _answer(self, grants: tuple[Grant, ...]) -> tuple[pb.Device, ...]:
        return tuple(
            pb.Device(
                request_names=[base(device.request)],
                pool_name=self._pool,
                device_name=device.name,
                cdi_device_ids=[f"{KIND}={cdi_name(grant.id, index)}"],
                share_id=device.share,
            )
            for grant in grants
            for index, device in enumerate(devices_of(grant))
        )

    async def _unprepare(self, claim: ClaimRef, passes: int = 0) -> bool:
        async with self._lock:
            if self.unused.get(claim.uid, 0) < passes:
                return False
            self._asked = [one for one in self._asked if one.uid != claim.uid]
            self._claims.unprepared(claim.uid)
            held = self._of(claim.uid)
            if _UID.fullmatch(claim.uid):
                self._cdi.remove(claim.uid)
            self._served.discard(claim.uid)
            if held:
                await self.node.release(one.id for one in held)
            else:
                # A grant that could not be synced was refused, and may be on the disk all the same:
                # then all is written anew. Where nothing is unsure this writes nothing.
                await self._store.put()
            await self._store.forget()  # of earlier ones, whose directories could not be removed
            for known in (self._unserved, self.unused):
                known.pop(claim.uid, None)
        if held:
            log.info("unprepared claim %s", claim)
            self.node.notify()
        return True

    def _of(self, uid: str) -> tuple[Grant, ...]:
        return tuple(one for one in self.live() if uid_of(one) == uid)

    async def _serve_missing(self) -> None:
        """Hold each claim that is not served, or has no CDI file."""
        for uid in dict.fromkeys(map(uid_of, self.live())):
            async with self._lock:
                held = self._of(uid)
                if not held or (uid in self._served and uid in self._cdi):
                    continue
                try:
                    await self._hold(held)
                    self._unserved.pop(uid, None)
                except (GpuManagerError, OSError) as error:
                    if self._unserved.get(uid) != str(error):
                        log.error("claim %s is not served: %s", uid, error)  # noqa: TRY400
                    self._unserved[uid] = str(error)
            await asyncio.sleep(0)

    def orphans(self) -> frozenset[AllocationID]:
        """Return the allocations that have a directory, and that the journal does not know."""
        return frozenset(self._isolation.allocations()) - self.node.journal.grants.keys()

    async def _clear(self, running: Collection[AllocationID] | None) -> None:
        """Remove what the journal does not know: it was never answered, or is given back.
        Directories only where it is known what containers run with. Raises OSError."""
        await self._store.forget()
        if not self.whole:
            return
        self._cdi.keep_only({uid_of(one) for one in self.live()})
        for name in () if running is None else self.orphans().difference(running):
            log.info("removing files of unfinished allocation %s", name)
            await self._store.close(name)

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


def uid_of(grant: Grant) -> str:
    """Return the UID of its claim; empty for what came otherwise."""
    return grant.source.uid if isinstance(grant.source, ClaimSource) else ""


def devices_of(grant: Grant) -> tuple[ClaimedDevice, ...]:
    """Return what a claim was allocated for this grant; nothing for what came otherwise."""
    return grant.source.devices if isinstance(grant.source, ClaimSource) else ()


def as_granted(devices: Iterable[AllocatedDevice], grants: Iterable[Grant]) -> bool:
    """Return whether a claim is allocated what its grants hold."""
    held = {device for grant in grants for device in devices_of(grant)}
    return held == {ClaimedDevice(one.name, one.request, one.share) for one in devices}
