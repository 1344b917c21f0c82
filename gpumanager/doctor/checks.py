"""What to make of a node. Pure: what was seen in, findings out.

A finding is wrong only where pods would get no GPU, or not what they were granted; what merely
makes something worse is a note. Whatever is not well says what to do.
"""

from gpumanager.doctor.about_claims import about_claims
from gpumanager.doctor.about_gpus import about_gpus, about_shares
from gpumanager.doctor.about_kubelet import about_kubelet
from gpumanager.doctor.about_node import about_containers, about_managers, about_own
from gpumanager.doctor.values import Finding, ObservedNode, Verdict


def examine(node: ObservedNode) -> tuple[Finding, ...]:
    """Return all findings, in the order in which an agent needs it."""
    return (
        *about_gpus(node.gpus),
        *about_shares(node.shares),
        *about_kubelet(node.kubelet),
        *about_managers(node),
        *about_containers(node.containers),
        *(about_claims(node.claims) if node.claims else ()),
        *about_own(node.own),
    )


def is_wrong(findings: tuple[Finding, ...]) -> bool:
    return any(finding.verdict is Verdict.WRONG for finding in findings)
