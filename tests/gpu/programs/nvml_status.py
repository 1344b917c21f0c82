"""Print in JSON how much memory of each GPU is used and how busy it is, by NVML."""

import json
import sys

from gpumanager.gpu.usage.status import NvmlStatus

with NvmlStatus() as ask:
    json.dump({gpu: [one.memory_used, one.percent] for gpu, one in ask().items()}, sys.stdout)
