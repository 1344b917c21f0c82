"""A device plugin beside ours, as a program: `python -m tests.e2e.node.second_plugin NAME COUNT`.

It serves a resource and registers it once with the kubelet, as NVIDIA's plugin does.
"""

import asyncio
import sys

from tests.contracts.kubelet.fake_plugin import FakePlugin
from tests.e2e.node.real_node import DEVICE_PLUGINS


async def serve(resource: str, count: int) -> None:
    plugin = FakePlugin(DEVICE_PLUGINS, resource, [f"GPU-{n}" for n in range(count)])
    plugin.endpoint = "second.sock"
    await plugin.start()
    await plugin.register()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
