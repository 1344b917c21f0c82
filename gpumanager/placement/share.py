"""A part of one GPU: best fit.

The fullest GPU on which the request still fits, so that whole GPUs stay whole for those who need
them: fewest free cores first, then fewest free memory blocks, then fewest processes, then index.
"""

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.placement.values import Books, Evaluator, GpuBook, Grant, Reason, Refusal, Request
from gpumanager.units import CORES_PER_GPU, blocks


def share(topology: Topology, books: Books, request: Request) -> Grant | Refusal:
    fitting = [gpu for gpu in topology.gpus if _fits(books.of(gpu), request)]
    if not fitting:
        return _refuse(topology, books, request)
    chosen = min(fitting, key=lambda gpu: _fullness(gpu, books.of(gpu)))
    return Grant(request, Evaluator.SHARE, (chosen,), _why(chosen, books.of(chosen)))


def _fits(book: GpuBook, request: Request) -> bool:
    return book.free_cores >= request.cores and book.free_blocks >= request.blocks


def _fullness(gpu: Gpu, book: GpuBook) -> tuple[int, int, int, int]:
    return book.free_cores, book.free_blocks, book.processes, gpu.index


def _why(gpu: Gpu, book: GpuBook) -> str:
    if book.untouched:
        return "fits on no GPU that is in use already; this one was free"
    room = (
        f"{book.free_cores} of {CORES_PER_GPU} cores and "
        f"{book.free_blocks} of {blocks(gpu.memory)} blocks were free"
    )
    return f"fullest GPU that still fits: {room}"


def _refuse(topology: Topology, books: Books, request: Request) -> Refusal:
    asked = f"{request.cores} cores and {request.blocks} blocks asked"
    largest = max((blocks(gpu.memory) for gpu in topology.gpus), default=0)
    if request.blocks > largest:
        return Refusal(request, Reason.TOO_LARGE, f"{asked}; the largest GPU has {largest} blocks")
    nearest = min(topology.gpus, key=lambda gpu: _shortfall(books.of(gpu), request))
    room = books.of(nearest)
    detail = (
        f"{asked}; the nearest, GPU {nearest.index}, "
        f"has {room.free_cores} cores and {room.free_blocks} blocks free"
    )
    return Refusal(request, Reason.NO_FREE_GPU, detail)


def _shortfall(book: GpuBook, request: Request) -> tuple[bool, int, int]:
    """Missing memory weighs more than missing cores, whose units are finer."""
    blocks_missing = max(0, request.blocks - book.free_blocks)
    cores_missing = max(0, request.cores - book.free_cores)
    return bool(blocks_missing and cores_missing), blocks_missing, cores_missing
