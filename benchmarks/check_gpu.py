"""Check the shim on a real GPU: `make gpu-check`.

    python benchmarks/check_gpu.py [--python PYTHON] [--gpu GPU] [--json FILE] [--quick]

PYTHON is one that has PyTorch; the one that runs this needs cffi, nvidia-ml-py, rich
and setuptools, and gcc beside it. What is checked, and how, is in the package gpu_check. Exit
status: 0 all that was checked is well; 1 something is not, or this machine cannot be checked, which
one line says; 2 bad usage.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from gpu_check import report
from gpu_check.checks import chosen
from gpu_check.clock import model_of
from gpu_check.conductor import WHOLE_SECONDS, conduct
from gpu_check.machine import Machine, look
from gpu_check.outcome import Outcome
from gpu_check.place import furnished, workshop
from rich.console import Console

from gpumanager.errors import GpuManagerError

DEFAULT_JSON: Final = Path("gpu-check.json")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-check", description="Check the shim on a real GPU.")
    parser.add_argument("--python", default="python3", help="a Python that has PyTorch")
    parser.add_argument("--gpu", help="its UUID, or its index by bus id; else the first")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON, help="where the figures go")
    parser.add_argument("--seconds", type=float, default=WHOLE_SECONDS, help="bound for all of it")
    parser.add_argument(
        "--driver-only", action="store_true", help="only what needs no PyTorch; says less"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one share alone: whether it works, not how well"
    )
    return parser.parse_args()


async def check(options: argparse.Namespace, begun: float) -> bool:
    """Whether all is well; raises GpuManagerError where nothing could be checked."""
    async with workshop() as work:
        machine = await look(options.python, options.gpu, work, driver_only=options.driver_only)
        model = model_of(machine.gpu)
        progress = Console(stderr=True, highlight=False, soft_wrap=True)

        def tell(outcome: Outcome) -> None:
            verdicts = ", ".join(finding.verdict.value for finding in outcome.findings)
            progress.print(f"{outcome.check}: {verdicts} ({outcome.seconds:.0f} s)")

        async with furnished(machine, work, model) as place:
            outcomes = await conduct(
                place,
                chosen(driver_only=options.driver_only, quick=options.quick),
                tell,
                deadline=begun + options.seconds,
            )
    seconds = time.monotonic() - begun
    written = report.as_json(_heading(machine, model), outcomes, seconds)
    options.json.write_text(json.dumps(written, indent=1) + "\n")
    heading = ", ".join(str(value) for value in _heading(machine, model).values())
    report.show(report.console(sys.stdout), heading, outcomes)
    print(f"{seconds:.0f} s; written to {options.json}")
    return report.passed(outcomes)


def _heading(machine: Machine, model: str) -> dict[str, Any]:
    return {"gpu": model, "memory": f"{machine.memory >> 20} MiB"} | {
        name: f"{name} {value}" for name, value in machine.said.items()
    }


def main() -> int:
    options = arguments()
    try:
        return 0 if asyncio.run(check(options, time.monotonic())) else 1
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except GpuManagerError as error:
        return complain(str(error), 1)
    except OSError as error:
        return complain(f"{error.strerror or error}: {error.filename or ''}", 1)


def complain(text: str, status: int) -> int:
    print("gpu-check:", " ".join(text.split()), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
