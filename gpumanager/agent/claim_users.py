"""The containers that use the claims of this node, for whoever shows grants to people."""

from gpumanager.dra.cluster import ClaimCluster
from gpumanager.dra.driver import ClaimRef
from gpumanager.grants.grant import Claimant, ClaimSource, Grant
from gpumanager.monitor.admissions import AdmissionKind, Admissions
from gpumanager.monitor.ports import holder


class ClaimUsers:
    """By the pods that the API server tells of. admissions: remembers refusals, for `explain`."""

    def __init__(self, cluster: ClaimCluster, admissions: Admissions) -> None:
        self._cluster = cluster
        self._admissions = admissions

    def of(self, grant: Grant) -> tuple[Claimant, ...]:
        """None of a claim that the watch has not told of yet."""
        source = grant.source
        if not isinstance(source, ClaimSource):
            return holder(grant)
        return self._cluster.containers(source.uid, source.name, source.requests)

    def refused(self, claim: ClaimRef, text: str) -> None:
        """Of each of its pods; of none where these are not known."""
        users = self._cluster.containers(claim.uid, claim.name)
        pods: dict[str, Claimant | None] = {one.uid: one for one in users}
        for one in pods.values() or (None,):
            name = f"{claim.namespace}/{claim.name}"
            self._admissions.add(AdmissionKind.PUT_OFF, one, text, claim=name)
