"""Call each `LIBRARY:FUNCTION` with 0; print in JSON the results and which libraries are mapped."""

import ctypes
import json
import re
import sys
from pathlib import Path

DRIVER = re.compile(r"/(lib[^/\s]*(?:cuda|nvidia-ml)[^/\s]*)$", re.MULTILINE)

results: dict[str, object] = {}
for word in sys.argv[1:]:
    library, function = word.split(":")
    results[word] = getattr(ctypes.CDLL(library), function)(0)
results["mapped"] = sorted(set(DRIVER.findall(Path("/proc/self/maps").read_text())))
json.dump(results, sys.stdout)
