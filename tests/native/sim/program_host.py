"""Runs tests of modules that are programs, each in a process that it forks: see conftest.py.

It has loaded no driver, started no thread and opened nothing when it forks, which is more than can
be said of the process in which pytest runs. Each line that it reads names a test and its machine;
each that it writes is the traceback, or empty.
"""

import ctypes
import faulthandler
import inspect
import json
import os
import sys
import traceback
from dataclasses import fields, replace
from importlib import import_module
from typing import Any, Final

from _pytest.config import _prepareconfig

from gpumanager.sim.machine import DriverBehaviour, GpuModel, Machine, UtilizationSamples
from tests.native.sim_box import SimBox, machine, sim_box

SECONDS: Final = 120
"""After these a test hangs: it says where, and ends."""


def main() -> None:
    _prepareconfig(["-s"])  # so that an assert that fails says what it compared
    import_module("cuda.bindings.driver")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(failure(*json.loads(line))) + "\n")
        answers.flush()


def failure(module: str, name: str, wanted: dict[str, Any]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(run(module, name, wanted, writing))
    os.close(writing)
    with os.fdopen(reading) as said:
        told = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return (told or f"the process ended with {status}") if status else ""


def run(module: str, name: str, wanted: dict[str, Any], writing: int) -> int:
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=writing)
    try:
        with sim_box(described(wanted)) as box:
            take_driver(box)
            test = getattr(import_module(module), name)
            test(*[box] if inspect.signature(test).parameters else [])
    except BaseException:  # noqa: BLE001 - whatever it is, the parent is told
        os.write(writing, traceback.format_exc().encode()[-60_000:])
        return 1
    return 0


def described(wanted: dict[str, Any]) -> Machine:
    parts: list[dict[str, Any]] = [
        {one.name: wanted[one.name] for one in fields(part) if one.name in wanted}
        for part in (DriverBehaviour, GpuModel)
    ]
    of_driver, of_model = parts
    if "samples" in of_driver:
        of_driver["samples"] = UtilizationSamples[of_driver["samples"]]
    made = machine(
        **{name: wanted[name] for name in wanted.keys() - of_driver.keys() - of_model.keys()}
    )
    models = {name: replace(model, **of_model) for name, model in made.models.items()}
    return replace(made, driver=replace(made.driver, **of_driver), models=models)


def take_driver(box: SimBox) -> None:
    """From now on this process's libraries of the driver are the simulated ones."""
    os.environ.update(box.environment())
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        own = ctypes.CDLL(str(box.libraries / name))
        assert ctypes.CDLL(name)._handle == own._handle, f"another {name} was loaded before"


if __name__ == "__main__":
    main()
