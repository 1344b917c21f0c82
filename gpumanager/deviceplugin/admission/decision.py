"""What Allocate grants for a set of device IDs: the GPUs, and how much of each. Pure.

If all IDs name one GPU (or exactly as many whole GPUs as are asked for), the grant is there if it
fits. If the kubelet took IDs of several GPUs for one share, placement chooses a GPU. A refusal is
final for the pod and its text is what the user sees: it says what was asked, what there is, and
what to write instead.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpumanager.deviceplugin.admission.steering import gpu_policy_of, roomiest
from gpumanager.deviceplugin.admission.transaction import Candidate, Transaction
from gpumanager.deviceplugin.device_ledger import locate, of_admission, on_gpus, place_new, resized
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import Refused
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.policies import BINPACK
from gpumanager.placement.values import GpuChoice, Reason, Refusal, Request, check
from gpumanager.units import CORES_PER_GPU, blocks, count_of

NO_CORES = (
    f"memory of a GPU without cores: a container that asks for {VMEMORY} needs {VCORE} too, "
    f"for example {VCORE}: 10"
)
NO_SHARING = (
    f"this node gives whole GPUs only (share mode is off): ask for {VCORE}: 100 or a multiple"
)
AS_NAMED = "chosen by the kubelet: devices inherited from the init container, or the only ones left"


def decide(
    ledger: Ledger,
    live: tuple[Grant, ...],
    transaction: Transaction,
    resource: str,
    ids: tuple[str, ...],
    *,
    now: float,
    share_mode: bool = True,
    gpu_policy: str = BINPACK,
) -> Grant | Refused:
    """Return the grant after an Allocate of these IDs. now: seconds since the epoch.

    Raises UnknownDeviceID.
    """
    admitted = of_admission(live, transaction.admission)
    half = next((a for a in admitted if a.id == transaction.allocation), None)
    draft = half or Grant(
        transaction.allocation,
        DevicePluginSource(transaction.admission),
        time=now,
        candidate=claimant(transaction.candidate),
    )
    cores = ids if resource == VCORE else draft.ids.core_ids
    memory = ids if resource == VMEMORY else draft.ids.memory_ids
    draft = resized(draft, replace(draft.ids, core_ids=cores, memory_ids=memory))
    others = [a for a in live if a.id != draft.id]
    request = transaction.request or Request(len(draft.ids.core_ids), len(draft.ids.memory_ids))
    if refusal := _impossible(request, transaction, share_mode=share_mode):
        return refusal
    if half and half.ids.core_ids:
        return _complete(ledger, others, draft)
    for grant in _candidates(ledger, live, transaction, draft, request):
        if _holds(ledger, others, draft, grant):
            owner = claimant(transaction.candidate) or draft.candidate
            return replace(_on(draft, grant), candidate=owner)
    return _placed(ledger, others, draft, request, gpu_policy_of(transaction, gpu_policy))


def claimant(progress: Candidate | None) -> Claimant | None:
    if progress is None:
        return None
    pod = progress.pod
    return Claimant(pod.uid, pod.namespace, pod.name, progress.container.name)


def _impossible(request: Request, transaction: Transaction, *, share_mode: bool) -> Refused | None:
    """Return a refusal by the request alone. Without a known container, only one resource is
    known."""
    known = transaction.request is not None or len(transaction.sizes) > 1
    if not request.cores:
        return Refused(NO_CORES) if known else None
    if request.cores < CORES_PER_GPU and not share_mode:
        return Refused(NO_SHARING)
    refusal = check(request)
    if refusal and (known or refusal.reason is not Reason.NO_MEMORY_ASKED):
        return Refused(str(refusal))
    return None


def _complete(ledger: Ledger, others: Iterable[Grant], draft: Grant) -> Grant | Refused:
    """Memory for a container that has its cores: its GPU is decided, and has to have the room."""
    if ledger.fits(others, draft):
        return draft
    gpus = [gpu for gpu in ledger.topology.gpus if gpu.uuid in draft.gpus]
    if draft.exclusive or any(draft.blocks > blocks(gpu.memory) for gpu in gpus):
        room = min((blocks(gpu.memory) for gpu in gpus), default=0)
        return Refused(
            f"{Reason.TOO_LARGE.value}: {count_of(draft.blocks, 'block')} asked; it has {room}"
        )
    books = ledger.books(others)
    room = min((books.of(gpu).blocks for gpu in gpus), default=0)
    return Refused(
        f"{Reason.NO_FREE_GPU.value}: {count_of(draft.blocks, 'block')} asked; "
        f"the GPU of its cores has {room} free{_closed(ledger)}"
    )


def _candidates(
    ledger: Ledger,
    live: tuple[Grant, ...],
    transaction: Transaction,
    draft: Grant,
    request: Request,
) -> Iterator[GpuChoice]:
    """GPUs to try, in order: those the IDs name, those of the other resource, the plan's."""
    sets = [
        locate(ledger, live, transaction.admission, draft.ids.core_ids),
        locate(ledger, live, transaction.admission, draft.ids.memory_ids),
        frozenset(draft.gpus),
    ]
    plan = transaction.plan
    for uuids in sets:
        gpus = tuple(gpu for gpu in ledger.topology.gpus if gpu.uuid in uuids)
        if len(gpus) == max(1, request.whole_gpus):
            why = plan.why if plan and plan.gpus == gpus else AS_NAMED
            yield GpuChoice(request, gpus, why)
    if plan:
        yield plan


def _holds(ledger: Ledger, others: Iterable[Grant], draft: Grant, grant: GpuChoice) -> bool:
    """Return whether this resource fits there, and the one that is still to be asked for."""
    if not ledger.fits(others, _on(draft, grant)):
        return False
    if grant.whole:
        return all(blocks(gpu.memory) >= grant.request.blocks for gpu in grant.gpus)
    if draft.ids.core_ids and draft.ids.memory_ids:
        return True
    gpu = grant.gpus[0]
    admission = draft.ids.admission
    of_other_pods = [a for a in others if a.ids.admission != admission]
    return ledger.book(of_other_pods, gpu).fits(grant.request)


def _placed(
    ledger: Ledger, others: Iterable[Grant], draft: Grant, request: Request, policy: str
) -> Grant | Refused:
    """The GPUs that the IDs name have no room: place it like a new request."""
    if request.cores:
        least = max(request.blocks, 1 if not request.whole_gpus else 0)
        answer = place_new(ledger, others, Request(request.cores, least), policy)
        if isinstance(answer, GpuChoice):
            return _on(draft, answer)
        full = answer.reason is Reason.NO_FREE_GPU
        return Refused(f"{answer}{_closed(ledger)}" if full else str(answer))
    # Memory came first: the GPU with the most room has it, and probably the cores.
    gpu = roomiest(ledger, ledger.books(others), request)
    if gpu is not None:
        choice = GpuChoice(request, (gpu,), "the GPU with the most room")
        return _on(draft, choice)
    largest = max((blocks(gpu.memory) for gpu in ledger.topology.gpus), default=0)
    reason = Reason.TOO_LARGE if request.blocks > largest else Reason.NO_FREE_GPU
    detail = f"{count_of(request.blocks, 'block')} asked; no GPU has as many free{_closed(ledger)}"
    return Refused(str(Refusal(request, reason, detail)))


def _closed(ledger: Ledger) -> str:
    """Return, to end a refusal with, which GPUs get nothing new and why, the first four by name."""
    why = dict.fromkeys(ledger.leaving, "it moves to another interface") | dict(ledger.closed)
    said = [
        f"; GPU {gpu.index} is closed: {why[gpu.uuid]}"
        for gpu in ledger.topology.gpus
        if gpu.uuid in why
    ]
    more = len(said) - 4
    rest = f"; {more} more {'is' if more == 1 else 'are'} closed" if more > 0 else ""
    return "".join(said[:4]) + rest


def _on(draft: Grant, placed: GpuChoice) -> Grant:
    return on_gpus(
        replace(draft, evaluator=placed.evaluator, why=placed.why),
        (gpu.uuid for gpu in placed.gpus),
        exclusive=placed.whole,
    )
