"""Ask a question that never returns in a thread of the executor, and end."""

import asyncio
import threading

from gpumanager.gpu.daemon_thread import DaemonThreadExecutor


async def main() -> None:
    loop = asyncio.get_running_loop()
    loop.run_in_executor(DaemonThreadExecutor("x"), threading.Event().wait)
    await asyncio.sleep(0)


asyncio.run(main())
