"""Whether a container runtime injects CDI devices into containers.

One that does not, passes them over without a word: containers would start without their GPU and
without their limit. containerd injects them from 2.0 on unless it is told not to, and 1.7 where it
is told to; 1.6 knows nothing of them (measured with 1.6.20, 1.7.24 and 2.1.9). CRI-O does from
1.28 on, in the version of the specification that is used here. Of other runtimes nothing is known,
which is not enough.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from gpumanager.runtime.cri import ContainerRuntime, RuntimeUnavailable, RuntimeVersion

_NUMBER: Final = re.compile(r"v?(\d+)\.(\d+)")
CONTAINERD_ALWAYS: Final = (2, 0)
CONTAINERD_BY_CHOICE: Final = (1, 7)
CRIO: Final = (1, 28)
WHAT_TO_DO: Final = (
    "containers would start without their GPUs and limits. Use containerd 2.0 or newer, or 1.7 "
    "with enable_cdi = true in its CRI plugin, or CRI-O 1.28 or newer; or serve this node by "
    "--interface=device-plugin without --device-plugin-cdi"
)


async def obstacle_of(runtime: ContainerRuntime, directory: Path) -> str:
    """Return why CDI files in `directory` would have no effect; empty where they would."""
    try:
        version = await runtime.version()
    except RuntimeUnavailable as error:
        return str(error)
    reason = judge_cdi(version, await runtime.configuration(), directory)
    return f"{version} {reason}: {WHAT_TO_DO}" if reason else ""


def judge_cdi(version: RuntimeVersion, configuration: str, directory: Path) -> str:
    """Return why it does not inject CDI devices; empty where it does. Pure.

    configuration: as the runtime reports it, or empty.
    """
    found = _NUMBER.match(version.version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    config = _config(configuration)
    match version.name:
        case "containerd" if number >= CONTAINERD_BY_CHOICE:
            enabled = config.get("enableCDI", number >= CONTAINERD_ALWAYS)
            if enabled is not True:
                return "does not inject CDI devices as it is configured"
            directories = config.get("cdiSpecDirs")
            if isinstance(directories, list):
                # `/run` and `/var/run` are one directory on every distribution of today.
                paths = (str(one).rstrip("/") for one in (directory, *directories))
                own, *others = (path.removeprefix("/var") for path in paths)
                return "" if own in others else f"does not read CDI files in {directory}"
            return ""
        case "cri-o" if number >= CRIO:
            return ""
        case "containerd" | "cri-o":
            return "knows nothing of CDI devices"
        case _:
            return "is not known to inject CDI devices"


def _config(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
