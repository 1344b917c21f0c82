"""What the stand-ins of NVIDIA's tools have in common: each runs a program, prints what it prints,
and knows what there was to see of it."""

import json
import os
import subprocess
import sys


def run():
    """The program's words, and what it told."""
    words = sys.argv[1:]
    command = words[next(at for at, word in enumerate(words) if os.sep in word) :]
    finished = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(finished.stdout, end="")
    if finished.returncode != 0:
        sys.exit(finished.returncode)
    return command, json.loads(finished.stdout)


def wrong(tool, told):
    """Whether this stand-in is to be wrong about a program that has the shim."""
    return os.environ.get("STANDIN_WRONG") == tool and told["shim"]
