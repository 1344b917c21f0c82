"""Choose GPUs for a request.

Pure: values in, values out. Nothing here looks at the clock, the host or the wire, so that the
scheduler extender, the node agent and `plan` reach the same answer.
"""

from gpumanager.gpu.values import Topology
from gpumanager.placement.link import link
from gpumanager.placement.policies import BINPACK
from gpumanager.placement.share import share
from gpumanager.placement.values import Evaluator, FreeGpus, GpuChoice, Refusal, Request, check
from gpumanager.placement.whole import fragment


def place(
    topology: Topology, free: FreeGpus, request: Request, policy: str = BINPACK
) -> GpuChoice | Refusal:
    """Choose the GPUs for one container. free: of every GPU of `topology`.

    policy: by which name of `policies` a GPU is chosen for a share; among whole GPUs links decide.
    """
    if refusal := check(request):
        return refusal
    match request.evaluator:
        case Evaluator.SHARE:
            return share(topology, free, request, policy)
        case Evaluator.FRAGMENT:
            return fragment(topology, free, request)
        case Evaluator.LINK:
            return link(topology, free, request)
