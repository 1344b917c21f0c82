"""Which device IDs to prefer: those of the GPUs that placement chooses for the whole container.

The kubelet asks for one resource at a time and takes the IDs we prefer, so this is how a GPU is
chosen at all. Only IDs that the journal holds free are offered, whatever the kubelet believes;
where those do not suffice the answer is filled up as best it can be, and Allocate decides. Pure.
"""

from dataclasses import dataclass, replace
from typing import Final

from gpumanager.deviceplugin.admission.transaction import Transaction, asking
from gpumanager.deviceplugin.device_ledger import (
    holders_of,
    locate,
    of_admission,
    originals,
    place_new,
)
from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Grant, State
from gpumanager.grants.ledger import Ledger
from gpumanager.kube.plan import planned
from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.names import ANNOTATION_GPU_POLICY, ANNOTATION_POLICY, VCORE
from gpumanager.placement.place import place
from gpumanager.placement.policies import BINPACK
from gpumanager.placement.preference import read_gpu_policy, read_preference
from gpumanager.placement.values import FreeGpus, GpuChoice, Request
from gpumanager.units import CORES_PER_GPU, blocks

AS_PLANNED: Final = "as the scheduler planned it"


@dataclass(frozen=True, slots=True)
class PreferenceCall:
    """A GetPreferredAllocation: choose `size` of `available`, among them `must_include`."""

    resource: str
    size: int
    available: frozenset[str]
    must_include: tuple[str, ...] = ()


def steer(
    ledger: Ledger,
    live: tuple[Grant, ...],
    transaction: Transaction,
    question: PreferenceCall,
    *,
    gpu_policy: str = BINPACK,
) -> tuple[tuple[str, ...], GpuChoice | None]:
    """Return the IDs to prefer, of exactly the size of `question` if that many exist, and the grant
    behind them where there is one.

    gpu_policy: of the node; see `gpu_policy_of`.
    """
    plan = transaction.plan or _plan(ledger, live, transaction, gpu_policy)
    # The GPUs of the other half, or of the devices that an earlier container leaves.
    admitted = of_admission(live, transaction.admission)
    half = next((a for a in admitted if a.id == transaction.allocation), None)
    uuids = frozenset(half.gpus) if half else frozenset[GpuUUID]()
    uuids = uuids or locate(ledger, live, transaction.admission, question.must_include)
    gpus = tuple(gpu for gpu in ledger.topology.gpus if gpu.uuid in uuids)
    if not gpus:
        gpus = plan.gpus if plan else _roomiest(ledger, live, question)
    # What must be, then free on the wanted GPUs, of no GPU, anywhere. Then, at worst, what is only
    # granted (its pod may have been rejected), then what is in use.
    must, offered = dict.fromkeys(question.must_include), question.available
    found = holders_of(live, offered)
    granted, used = (
        frozenset(i for one in found if one.state is state for i in one.ids.all)
        for state in (State.ANSWERED, State.CONFIRMED)
    )
    free = offered - granted - used
    wanted, most = free & ledger.ids.on(gpus), max(question.size, len(must))
    for rank in (wanted, frozenset(originals(free)), free, offered - used, offered):
        if len(must) >= most:
            break
        must |= dict.fromkeys((*ledger.ids.ordered(rank), *originals(rank)))
    return tuple(must)[:most], plan


def could_hold(ledger: Ledger, books: FreeGpus, pod: PodView) -> bool:
    """Return True if everything the pod asks for could be granted at once from what `books` has
    free."""
    for container in asking(pod):
        if container.cores is None or container.blocks is None:
            continue
        answer = place(ledger.topology, books, Request(container.cores, container.blocks))
        if not isinstance(answer, GpuChoice):
            return False
        if container.kind is not ContainerKind.INIT:
            books = books.take(answer)
    return True


def roomiest(ledger: Ledger, books: FreeGpus, request: Request) -> Gpu | None:
    """Return the GPU with the most room in both resources, of those that have what is asked."""

    def room(gpu: Gpu) -> tuple[float, int]:
        free = books.of(gpu)
        least = min(free.cores / CORES_PER_GPU, free.blocks / max(1, blocks(gpu.memory)))
        return least, -gpu.index

    fitting = [gpu for gpu in ledger.topology.gpus if books.of(gpu).fits(request)]
    return max(fitting, key=room, default=None)


def gpu_policy_of(transaction: Transaction, of_node: str) -> str:
    """By which policy the GPU for a share is chosen: its pod's, where the pod names one.

    A word that is no policy counts for nothing here: the webhook and the extender refuse it.
    """
    one = transaction.candidate
    said = one.pod.annotations if one else {}
    try:
        nodes = read_preference(said.get(ANNOTATION_POLICY, ""))
        gpus = read_gpu_policy(said.get(ANNOTATION_GPU_POLICY, ""))
    except ValueError:
        return of_node
    return replace(nodes, gpus=gpus).gpu_policy or of_node


def _plan(
    ledger: Ledger, live: tuple[Grant, ...], transaction: Transaction, gpu_policy: str
) -> GpuChoice | None:
    if transaction.request is None:
        return None
    one, request = transaction.candidate, transaction.request
    gpus = planned(ledger.topology, one.pod, one.container) if one else ()
    books = ledger.books(live)
    full = [gpu for gpu in gpus if not books.of(gpu).fits(request)]
    if not full and len(gpus) == max(1, request.whole_gpus):
        return GpuChoice(request, gpus, AS_PLANNED)
    answer = place_new(ledger, live, request, gpu_policy_of(transaction, gpu_policy))
    if not isinstance(answer, GpuChoice):
        return None
    if not full:
        return answer
    # A plan is not followed. Example: the pod before this one has not ended for this node.
    gpu = full[0]
    on_it = (one.pod or one.candidate or "an unknown pod" for one in live if gpu.uuid in one.shares)
    there = ", ".join(sorted(map(str, on_it))[:3]) or "nobody, and out of use"
    return replace(
        answer, why=f"{answer.why}; the scheduler planned GPU {gpu.index}, held by {there}"
    )


def _roomiest(ledger: Ledger, live: tuple[Grant, ...], question: PreferenceCall) -> tuple[Gpu, ...]:
    """For a container nobody knows: whole GPUs by placement, a share where the most room is."""
    books = ledger.books(live)
    cores = question.size if question.resource == VCORE else 0
    request = Request(cores, 0 if cores else question.size)
    if not request.whole_gpus:
        gpu = roomiest(ledger, books, request)
        return (gpu,) if gpu else ()
    answer = place(ledger.topology, books, request)
    return answer.gpus if isinstance(answer, GpuChoice) else ()
