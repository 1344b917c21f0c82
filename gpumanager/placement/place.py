"""Choose GPUs for a request.

Pure: values in, values out. Nothing here looks at the clock, the host or the wire, so that the
scheduler extender and the node agent reach the same answer.
"""

from collections.abc import Callable
from typing import Final

from gpumanager.gpu.values import Topology
from gpumanager.placement.fragment import fragment
from gpumanager.placement.link import link
from gpumanager.placement.share import share
from gpumanager.placement.values import Books, Evaluator, Grant, Reason, Refusal, Request
from gpumanager.units import CORES_PER_GPU

Evaluate = Callable[[Topology, Books, Request], Grant | Refusal]

EVALUATORS: Final[dict[Evaluator, Evaluate]] = {
    Evaluator.SHARE: share,
    Evaluator.FRAGMENT: fragment,
    Evaluator.LINK: link,
}


def place(topology: Topology, books: Books, request: Request) -> Grant | Refusal:
    """The GPUs for one container. `books` has a book for every GPU of `topology`."""
    return check(request) or EVALUATORS[evaluator_of(request)](topology, books, request)


def evaluator_of(request: Request) -> Evaluator:
    """Which rule decides about a valid request."""
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
        detail = f"{request.cores} cores and no memory asked; ask for at least 1 block of 256 MiB"
        return Refusal(request, Reason.NO_MEMORY_ASKED, detail)
    return None


def _invalid(request: Request, detail: str) -> Refusal:
    return Refusal(request, Reason.NOT_A_REQUEST, detail)
