"""Play kernels of an engine and print their rate: `python play_engine.py ENGINE SIZE`.

SIZE: rounds of a kernel, or `2000us` for as many as take that long. The check's workloads and the
stand-ins for frameworks are on PYTHONPATH.
"""

import importlib
import json
import sys

module = importlib.import_module("player")
player = module.Player(module.engine_of(sys.argv[1]))
wanted = sys.argv[2]
if wanted.endswith("us"):
    size = player.calibrate(int(wanted.removesuffix("us")))["size"]
else:
    size = int(wanted)
player.load(size, 2)
played = player.play(0.02, 0.1, 0.02)
json.dump({"size": size, "rate": played["kernels"] / played["seconds"]}, sys.stdout)
