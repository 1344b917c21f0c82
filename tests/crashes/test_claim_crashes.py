"""Claims, whenever the agent or its node stops: nothing answered is lost, and nothing is left.

A sample runs with the others. `GPUMANAGER_CRASH_POINTS=10000` runs as many, from the seed
`GPUMANAGER_CRASH_SEED` on (0 without), and prints what happened.
"""

import asyncio
import gc
import os
import shutil
import sys
import warnings
from collections import Counter
from pathlib import Path

from tests.crashes.claim_history import run_history
from tests.crashes.disk import Fault
from tests.histories.history_loop import HistoryLoop

POINTS = int(os.environ.get("GPUMANAGER_CRASH_POINTS", "100"))
SEED = int(os.environ.get("GPUMANAGER_CRASH_SEED", "0"))
EVENTS = 25
DEATH, POWER = Fault.DEATH.value, Fault.POWER.value


def test_whenever_it_stops_answers_stay_and_nothing_is_left(tmp_path: Path) -> None:
    happened: Counter[str] = Counter()
    seed = SEED
    with asyncio.Runner(loop_factory=HistoryLoop) as runner, warnings.catch_warnings():
        # An agent that has died closes nothing; its sockets stay for the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        while happened[DEATH] + happened[POWER] < POINTS:
            root = tmp_path / "node"
            root.mkdir()
            try:
                happened += runner.run(run_history(root, seed, EVENTS))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            finally:
                gc.collect()
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
            seed += 1
    sys.stdout.write(f"seeds {SEED} to {seed - 1}:\n")
    sys.stdout.writelines(f"{times:7} {what}\n" for what, times in sorted(happened.items()))
    assert {"prepared", "unprepared", *(fault.value for fault in Fault)} <= happened.keys()
    stopped = {what.partition(":")[0] for what in happened}
    assert {"prepare", "unprepare", "start"} <= stopped
