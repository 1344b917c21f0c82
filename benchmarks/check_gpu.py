"""Check the shim on a real GPU: `make gpu-check`, or gpu-check.sh of a bundle.

    python check_gpu.py [--python PYTHON] [--gpu GPU] [--out FOLDER] [--seconds SECONDS] [STAGE …]

PYTHON runs the workloads: one with PyTorch, if those that need it are to run. The stages, and what
they check, are in the package gpu_check. Exit status: 0 nothing failed; 1 something did; 2 bad
usage.
"""

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "site")]  # of the bundle

from gpu_check.bench import Bench  # noqa: E402 - what is imported lies there
from gpu_check.results import Results  # noqa: E402
from gpu_check.runner import SECONDS, WHOLE_SECONDS, Options, run, run_stage  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-check", description="Check the shim on a real GPU.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(SECONDS)}")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--gpu", help="its UUID, or its index by bus id; else the first")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="for the results")
    parser.add_argument("--seconds", type=float, default=WHOLE_SECONDS, help="bound for all of it")
    for name in ("--stage", "--work", "--torch"):  # of the process of one stage
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [stage for stage in options.stages if stage not in SECONDS]:
        parser.error(f"no stage {', '.join(unknown)}: there are {', '.join(SECONDS)}")
    return options


def main() -> int:
    options = arguments()
    python = Path(shutil.which(options.python) or options.python)
    out = options.out.resolve()
    if options.stage is not None:
        deadline = time.monotonic() + options.seconds
        work, torch = Path(options.work), Path(options.torch)
        bench = Bench(python, options.gpu, work, Results(out), torch, deadline)
        asyncio.run(run_stage(options.stage, bench))
        return 0
    stages = [stage for stage in SECONDS if stage in (options.stages or SECONDS)]
    whole = Options(HERE, stages, python, options.gpu, out, options.seconds)
    return 0 if run(whole) else 1


if __name__ == "__main__":
    sys.exit(main())
