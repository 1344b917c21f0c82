"""Print twice, in JSON, what each process holds of each GPU, by NVML."""

import json
import sys

from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery

with NvmlPasses() as passes:
    json.dump([passes(NvmlQuery(processes=None)).held for _ in range(2)], sys.stdout)
