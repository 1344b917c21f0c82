"""Whole GPUs: the container has the driver's own libraries, and nothing limits it."""

from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ENV_VISIBLE, ContainerEdits, driver
from gpumanager.isolation.protocol import Means


class PassThrough:
    """Keeps nothing."""

    def __init__(self, means: Means) -> None:
        self._volumes = means.volumes

    async def prepare(self, grant: Grant) -> ContainerEdits:
        visible = ContainerEdits(envs={ENV_VISIBLE: ",".join(grant.shares)})
        return driver(self._volumes, self._volumes.whole) + visible

    async def update(self, grant: Grant) -> None:
        """There is no limit to change."""

    async def release(self, name: AllocationID) -> None:
        """There is nothing to remove."""

    def usage(self, name: AllocationID) -> None:
        del name
