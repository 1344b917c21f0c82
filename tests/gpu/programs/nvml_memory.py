"""Print twice, in JSON, what each process holds of each GPU, by NVML."""

import json
import sys

from gpumanager.gpu.usage.process_memory import NvmlMeter

with NvmlMeter() as meter:
    json.dump([meter(), meter()], sys.stdout)
