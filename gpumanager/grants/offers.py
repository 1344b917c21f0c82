"""Which interface offers which GPU: device plugins or claims, never both.

A GPU goes over in three steps, each of which a restart may interrupt:

    offered     its interface gives it to pods
    leaving     it is withdrawn (no device ID of it is healthy, the node's slice lacks it), and what
                its pods still have, or are about to be given, is served on. Of device IDs others
                are withdrawn first: `device_ledger.exchanged`
    offered     by the other interface, once nobody has used it for a while

Only the last step is written down, before it takes effect; all else follows from what pods have. An
agent that starts withdraws again what has to go. The decision is pure; `OfferFile` keeps it.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.names import CLAIMS, DEVICE_PLUGINS

FILE_NAME: Final = "interfaces.json"
VERSION: Final = 1


class OffersUnwritable(GpuManagerError):
    """A GPU cannot go over, because that cannot be written down."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(f"{path}: {cause.strerror}; GPUs stay with the interface that they have")


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """interface: the only one that may grant the GPU. leaving: it gets nothing new there.

    withdrawn: schedulers have had the time to learn that. since: of one that is leaving, from when
    on that, or that it is unused, is waited for; monotonic seconds; None while it is in use.
    """

    interface: str
    leaving: bool = False
    withdrawn: bool = False
    since: float | None = None


Offers = Mapping[GpuUUID, GpuOffer]


@dataclass(frozen=True, slots=True)
class GpuUses:
    """What pods have now, or may be about to get.

    devices, claims: GPUs in use by either interface, or not withdrawn there for certain.
    cores: of each GPU that grants hold. allocated: GPUs that the scheduler has given to claims.
    arriving: a pod that wants device IDs is bound to the node and has none yet.
    """

    devices: frozenset[GpuUUID] = frozenset()
    claims: frozenset[GpuUUID] = frozenset()
    cores: Mapping[GpuUUID, int] | None = None
    allocated: frozenset[GpuUUID] = frozenset()
    arriving: bool = False

    def of(self, gpu: GpuUUID, interface: str) -> bool:
        return gpu in (self.claims if interface == CLAIMS else self.devices)


def first_offers(
    gpus: Iterable[GpuUUID], written: Collection[GpuUUID], uses: GpuUses, wanted: str
) -> Offers:
    """Return the offers at the start. written: those that claims had. wanted: for GPUs of which
    nothing is known.

    What containers run with comes first: the file may be lost, or older than the grants. Example:
    an agent of an earlier release had only device plugins, and left no file.
    """
    found = {}
    for gpu in gpus:
        held = [one for one in (DEVICE_PLUGINS, CLAIMS) if uses.of(gpu, one)]
        known = CLAIMS if gpu in written else wanted
        found[gpu] = GpuOffer(held[0] if len(held) == 1 else known)
    return found


def wanted(offers: Offers, uses: GpuUses, claims_gpus: int | None) -> Mapping[GpuUUID, str]:
    """Return the interface that each GPU should come to. claims_gpus: as many as claims should
    have; None: all stay.

    A GPU that device plugins offer and the scheduler has given to a claim goes to claims, whatever
    the number: that pod could never start. Example: the claim was allocated by a slice of before.
    """
    if claims_gpus is None:
        return {gpu: one.interface for gpu, one in offers.items()}
    order = sorted(offers, key=lambda gpu: _rank(gpu, offers, uses))
    chosen = set(order[:claims_gpus])
    late = {g for g in uses.allocated if g in offers and offers[g].interface == DEVICE_PLUGINS}
    return {gpu: CLAIMS if gpu in chosen | late else DEVICE_PLUGINS for gpu in offers}


def _rank(gpu: GpuUUID, offers: Offers, uses: GpuUses) -> tuple[bool | int, ...]:
    """Claims should rather have those that they use, then unused ones, then the least used.

    Of equals those that go already: no GPU turns back because another's pods have changed.
    """
    one, cores = offers[gpu], (uses.cores or {}).get(gpu, 0)
    used = uses.of(gpu, one.interface)
    if one.interface == CLAIMS:
        return (0, not used, one.leaving, -cores)
    return (1, used, not one.leaving, cores)


def moved(
    offers: Offers, target: Mapping[GpuUUID, str], uses: GpuUses, now: float, quiet: float
) -> Offers:
    """Move each GPU one step towards its target. quiet: seconds in which schedulers learn what they
    are told, and that a GPU has to be unused before it goes over.

    What is in flight comes within that time. Examples: an Allocate for IDs that the kubelet chose
    before it read that they are unhealthy; a claim that the scheduler allocated by its cache.
    """
    found = {}
    for gpu, one in offers.items():
        since = now if one.since is None else one.since
        if one.interface == target[gpu]:
            found[gpu] = GpuOffer(one.interface)
        elif not one.leaving and one.interface == DEVICE_PLUGINS and uses.arriving:
            found[gpu] = one  # the kubelet would refuse that pod, if these IDs are the last
        elif not one.leaving:
            # A slice is withdrawn as a whole; what is allocatable the kubelet tells every 10 s.
            at_once = one.interface == CLAIMS
            found[gpu] = GpuOffer(one.interface, leaving=True, withdrawn=at_once, since=now)
        elif not one.withdrawn:
            learnt = now - since >= quiet
            found[gpu] = replace(one, withdrawn=learnt, since=None if learnt else since)
        elif uses.of(gpu, one.interface):
            found[gpu] = replace(one, since=None)
        elif now - since < quiet:
            found[gpu] = replace(one, since=since)
        else:
            found[gpu] = GpuOffer(target[gpu])
    return found


def offered_by(offers: Offers, interface: str) -> frozenset[GpuUUID]:
    """Return the GPUs that no other interface may grant, those that leave it among them."""
    return frozenset(gpu for gpu, one in offers.items() if one.interface == interface)


class OfferFile:
    """The GPUs that claims offer. A node that never had claims has no such file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME

    def read(self) -> frozenset[GpuUUID]:
        """Return the GPUs in the file; none where there is no file, or it cannot be understood."""
        try:
            content = json.loads(self.path.read_text())
            return frozenset(GpuUUID(str(one)) for one in content["claims"])
        except (OSError, ValueError, KeyError, TypeError):
            return frozenset()

    def write(self, gpus: Collection[GpuUUID]) -> None:
        """Write the file, and return once it is on the disk. Raises OffersUnwritable, and then
        nothing has changed."""
        new = self.path.with_name(f"{FILE_NAME}.new")
        try:
            with new.open("w") as file:
                json.dump({"version": VERSION, "claims": sorted(gpus)}, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise OffersUnwritable(self.path, error) from error
