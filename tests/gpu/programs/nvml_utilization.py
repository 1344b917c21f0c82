"""Print in JSON, after 0.8 s, each sample of a process that NVML gave: GPU, pid, end, percent."""

import json
import sys
import time

from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery

rows, end = [], time.monotonic() + 0.8
with NvmlPasses() as passes:
    while time.monotonic() < end:
        for gpu, answer in passes(NvmlQuery(samples=None)).samples.items():
            rows += [[gpu, s.pid, s.ended_ns / 1e9, s.percent] for s in answer.samples or ()]
        time.sleep(0.05)
json.dump(rows, sys.stdout)
