"""Choose GPUs for a request.

Pure: values in, values out. Nothing here looks at the clock, the host or the wire, so that the
scheduler extender, the node agent and `plan` reach the same answer.
"""

from gpumanager.gpu.values import Topology
from gpumanager.placement.link import link
from gpumanager.placement.policies import BINPACK
from gpumanager.placement.share import share
from gpumanager.placement.values import Evaluator, FreeGpus, GpuChoice, Reason, Refusal, Request
from gpumanager.placement.whole import fragment
from gpumanager.units import CORES_PER_GPU, count_of


def place(
    topology: Topology, free: FreeGpus, request: Request, policy: str = BINPACK
) -> GpuChoice | Refusal:
    """Choose the GPUs for one container. free: of every GPU of `topology`.

    policy: by which name of `policies` a GPU is chosen for a share; among whole GPUs links decide.
    """
    if refusal := check(request):
        return refusal
    match evaluator_of(request):
        case Evaluator.SHARE:
            return share(topology, free, request, policy)
        case Evaluator.FRAGMENT:
            return fragment(topology, free, request)
        case Evaluator.LINK:
            return link(topology, free, request)


def evaluator_of(request: Request) -> Evaluator:
    """Return which rule decides about a valid request."""
    if request.cores < CORES_PER_GPU:
        return Evaluator.SHARE
    return Evaluator.FRAGMENT if request.cores == CORES_PER_GPU else Evaluator.LINK


def check(request: Request) -> Refusal | None:
    """Refuses what no machine could grant."""
    if request.cores <= 0:
        return _invalid(request, f"{request.cores} cores asked; the least is 1")
    if request.blocks < 0:
        return _invalid(request, f"{request.blocks} memory blocks asked; the least is 0")
    if request.cores > CORES_PER_GPU and request.cores % CORES_PER_GPU:
        return _invalid(
            request, f"{request.cores} cores asked; above 100 only multiples of 100 can be granted"
        )
    if request.cores < CORES_PER_GPU and not request.blocks:
        asked = f"{count_of(request.cores, 'core')} and no memory asked"
        detail = f"{asked}; ask for at least 1 block of 256 MiB"
        return Refusal(request, Reason.NO_MEMORY_ASKED, detail)
    return None


def _invalid(request: Request, detail: str) -> Refusal:
    return Refusal(request, Reason.NOT_A_REQUEST, detail)
