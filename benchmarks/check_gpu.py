"""Check the shim on a real GPU: `make gpu-check`, or gpu-check.sh of a bundle.

    python check_gpu.py [--python PYTHON] [--gpu GPU] [--out FOLDER] [--seconds SECONDS]
                        [--check CHECK]… [first | rest | all | STAGE …]

`first` is what decides: 90 seconds at most without PyTorch, 240 with it. `rest` is everything else;
the default is all. PYTHON runs the workloads: one with PyTorch, if those that need it are to run.
The stages, and what they check, are in the package gpu_check. Exit status: 0 all was looked at and
nothing failed; 1 something failed; 2 bad usage; 3 nothing failed, but something was lost: there was
no time for it, or what it needs is missing.
"""

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "site")]  # of the bundle

from gpu_check.bench import Bench, patient  # noqa: E402 - what is imported lies there
from gpu_check.results import Results  # noqa: E402
from gpu_check.runner import (  # noqa: E402
    ALONE_SECONDS,
    COMMANDS,
    SECONDS,
    Options,
    Part,
    adopt_orphans,
    run,
    run_stage,
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-check", description="Check the shim on a real GPU.")
    words = f"{', '.join(COMMANDS)}, or stages of {', '.join(SECONDS)}"
    parser.add_argument("stages", nargs="*", default=["all"], metavar="STAGE", help=words)
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--gpu", help="its UUID, or its index by bus id; else the first")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="for the results")
    parser.add_argument("--seconds", type=float, help="bound for all of it")
    parser.add_argument("--check", action="append", default=[], help="a check's name; only those")
    for name in ("--stage", "--work", "--torch"):  # of the process of one stage
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--by-torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    named, single = options.stages[0], len(options.stages) == 1
    options.stages, options.bound = (
        COMMANDS[named] if single and named in COMMANDS else (options.stages, ALONE_SECONDS)
    )
    if unknown := [stage for stage in options.stages if stage not in SECONDS]:
        parser.error(f"no stage {', '.join(unknown)}: there are {words}")
    return options


def main() -> int:
    options = arguments()
    python = Path(shutil.which(options.python) or options.python)
    out = options.out.resolve()
    if options.stage is not None:
        deadline = time.monotonic() + options.seconds
        work, torch = Path(options.work), Path(options.torch)
        bench = Bench(python, options.gpu, work, Results(out), torch, deadline)
        part = Part(options.stage, options.by_torch, options.seconds)
        asyncio.run(run_stage(part, bench, options.check))
        return 0
    stages = [stage for stage in SECONDS if stage in options.stages]
    bound = options.seconds or patient(options.bound)
    adopt_orphans()
    return run(Options(HERE, stages, python, options.gpu, out, bound, options.check))


if __name__ == "__main__":
    sys.exit(main())
