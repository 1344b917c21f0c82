"""Print in JSON how much memory of each GPU is used and how busy it is, by NVML."""

import json
import sys

from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery

with NvmlPasses() as passes:
    status = passes(NvmlQuery(status=True)).status or {}
    json.dump({gpu: [one.memory_used, one.percent] for gpu, one in status.items()}, sys.stdout)
