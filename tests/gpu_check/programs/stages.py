"""Stands for the check's program: its stage `facts` fails, without PyTorch after a first check, and
with it at once; `entries` does not end. Where checks are named, it has none of them.
"""

import json
import sys
import time
from pathlib import Path

by_torch = "--by-torch" in sys.argv
words = [word for word in sys.argv[1:] if word != "--by-torch"]
options = dict(zip(words[::2], words[1::2], strict=True))
stage, work = options["--stage"], Path(options["--work"])
sys.stdout.write(f"about to {stage}\n")
if "--check" in options:
    (work / "planned.json").write_text("[]")
    sys.exit(0)
if stage == "facts":
    if by_torch:
        sys.exit(3)
    (work / "planned.json").write_text('["two"]')
if stage == "entries" and not by_torch:
    time.sleep(600)
row = {"stage": stage, "check": "torch c" if by_torch else "c", "verdict": "pass", "said": "fine"}
row |= {"check": "one"} if stage == "facts" else {}
with (Path(options["--out"]) / "checks.jsonl").open("a") as file:
    file.write(json.dumps(row | {"seconds": 0, "figures": {}}) + "\n")
if stage == "facts":
    sys.exit(3)
