"""cuGetProcAddress: are the driver's answers its exports, by which the shim recognises them? And
are they exchanged for hooks behind the shim?
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import WORKLOADS, Bench
from gpu_check.conductor import Check
from gpu_check.exports import read_exports
from gpu_check.machine import libraries, visible
from gpu_check.outcome import Finding, Verdict, passed_if
from gpu_check.process import told
from gpu_check.stages.machine import KNOWN

VARIANT: Final = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
SECONDS: Final = 15.0
PACED: Final = frozenset({"launch", "work", "change"})
"""Kinds of hooks that are about GPU time alone: a whole GPU needs none of them."""


async def _table(bench: Bench) -> Path:
    """What the workload reads."""
    cuda = (await libraries(bench.work, []))["libcuda"].resolve()
    exports = await asyncio.to_thread(read_exports, cuda)
    hooks = json.loads(KNOWN.read_text())["hooks"] if KNOWN.exists() else {}
    path = bench.work / "entries.json"
    path.write_text(json.dumps({"exports": sorted(exports.symbols), "hooks": hooks}))
    return path


def families() -> list[str]:
    """Base names of the hooked functions, as cuGetProcAddress is asked for them."""
    hooks = json.loads(KNOWN.read_text())["hooks"] if KNOWN.exists() else {}
    return sorted({VARIANT.sub("", name) for name in hooks})


async def bare(bench: Bench) -> AsyncIterator[Finding]:
    table, version = await _table(bench), (await libraries(bench.work, []))["libcuda"].resolve()
    record = bench.work / f"recorded-cuGetProcAddress-{version.name.partition('.so.')[2]}.txt"
    command = [bench.python, WORKLOADS / "entries.py", table, record]
    seen = await told(command, visible(bench.gpu), bench.log("bare"), SECONDS)
    bench.results.fact("entry points", **seen)
    said = f"{seen['answered']} answers for {seen['names']} names, {seen['foreign']} no export"
    yield passed_if({"some answers are no export": seen["foreign"] == 0}, said, seen)


async def behind_the_shim(bench: Bench) -> AsyncIterator[Finding]:
    """With all of the GPU, and with a half."""
    table, place = await _table(bench), await bench.place()
    for cores in (100, 50):
        room = await place.limit(cores)
        evidence = await place.run(room, "entries.py", SECONDS, str(table))
        yield behind(cores, evidence.told, json.loads(table.read_text())["hooks"])


def behind(cores: int, seen: Mapping[str, Any], hooks: Mapping[str, str]) -> Finding:
    excused = PACED if cores == 100 else frozenset()
    bypassed = [name for name in seen["bypassed"] if hooks[name] not in excused]
    conditions = {
        "the shim is not in the program": bool(seen["shim"]),
        f"answered with the driver's own: {', '.join(bypassed)}": not bypassed,
        "nothing is exchanged for a hook": seen["exchanged"] > 0,
    }
    said = f"{seen['exchanged']} functions exchanged for hooks"
    if not hooks:
        return Finding(Verdict.SKIP, "the table of hooks is in a bundle only", seen, f"{cores} %")
    finding = passed_if(conditions, said, seen)
    return Finding(finding.verdict, finding.said, finding.figures, f"{cores} %")


CHECKS: Final = (
    Check("entry points of the driver", 20, bare),
    Check("entry points behind the shim", 30, behind_the_shim),
)
