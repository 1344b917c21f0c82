"""From what a run showed to what is said of it. Pure: evidence in, a finding out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpu_check.bench import patience
from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding, Verdict, passed_if

GRANULE: Final = 2 << 20
"""What a driver takes at a time; memory smaller than that comes out of such a piece."""

ROUNDING: Final = 16 << 20
"""Bytes by which the driver's own account, and the books once they follow it, may be over the
limit: slabs of 2 MiB for each of several small sizes, and page tables, which the driver takes when
the program's own bytes are there already.
"""

RESERVED: Final = 256 << 20
"""By which the GPU's own figure may be over it: what the driver takes for itself, of no process."""

AGREE: Final = 16 << 20
"""Bytes that two views may differ by: they are asked one after another, and some count in MiB."""

FILLED_PART, CELL_PART = 0.95, 0.9
"""Of a limit of 3 GiB, and of 1 or 2: what a program that allocates in pieces of 64 MiB comes close
to.
"""

PIECES: Final = 4
"""Kinds of pieces in which memory.py fills."""

BUSY: Final = 3
"""Percent of the GPU's time that others may take without a word."""

LARGEST_ERROR: Final = 1e-3
PAID_PARTS: Final = (0.5, 1.5)
"""Of the time that a GPU was kept busy: what may be paid for. The host sees waits, too."""

FREED_SECONDS: Final = 1.0

OUT_OF_MEMORY: Final = 2
NOT_THERE: Final = -1
"""Answer of a runtime that has no function of that name."""

SHIM_THERE: Final = "the shim is in the program"

IMPAIRED: Final = frozenset({"entry", "timing"})
"""Degradations that no program of the check gives a reason for: an entry point that could not be
placed, timing events that fail.
"""


def idle(busy: int | None, processes: int) -> Finding:
    """busy: percent, before anything of the check ran; None: NVML does not say."""
    if busy is None:
        return Finding(Verdict.LOST, "NVML does not tell how busy the GPU is", {"busy": None})
    said = f"{busy} % busy and {processes} processes before the check"
    figures = {"busy": busy, "processes": processes}
    if busy <= BUSY:
        return Finding(Verdict.PASS, said, figures)
    return Finding(Verdict.LOST, f"{said}: shares and overheads mean nothing", figures)


def cell(
    name: str, told: Mapping[str, Any], seen: Evidence | None, failed: str | None, *, whole: bool
) -> Finding:
    """Judge a program that meets the driver in one of several ways. seen: of a program with a
    limit; one without gets all the memory that it asks for. whole: it has all of a GPU, and is not
    charged.
    """
    if failed is not None:
        return Finding(Verdict.FAIL, failed, {**told}, name)
    results = told.get("results", {})
    answers = ", ".join(f"{call} answers {result}" for call, result in results.items() if result)
    conditions = {
        f"all calls answer 0 ({answers})": set(results.values()) <= {0, NOT_THERE},
        "its results are right": told.get("worst", 0) < LARGEST_ERROR,
        "it had some memory": told["held"] > 0,
    }
    if seen is None:
        there = name != "bare"
        conditions |= {
            "no allocation is refused": told["refused"] == 0,
            f"the shim is {'' if there else 'not '}in the program": told["shim"] == there,
        }
    else:
        conditions |= loaded(seen) | _by_driver(seen)
        conditions |= in_the_books(seen, told["held"], CELL_PART)
        conditions["it is refused as out of memory (2)"] = told["refused"] == OUT_OF_MEMORY
    if seen is not None and not whole:
        conditions |= paid(seen)
    figures = {**told} | ({} if seen is None else memory_figures(seen) | time_figures(seen))
    took = f"{mib(told['held'])} taken, refused with {told['refused']}"
    said = took if seen is None else f"{took}; {memory_said(seen)}; {time_said(seen)}"
    found = passed_if(conditions, said, figures)
    if found.verdict is Verdict.PASS and NOT_THERE in results.values():
        lacking = ", ".join(call for call, result in results.items() if result == NOT_THERE)
        found = Finding(Verdict.LOST, f"the runtime has no way to {lacking}; {said}", figures)
    return Finding(found.verdict, found.said, found.figures, name)


def refused_to_run(told: Mapping[str, Any], failed: str) -> bool:
    """The runtime does not believe its driver, or something ended the program."""
    if "results" not in told:
        return bool(failed)
    return not set(told["results"].values()) <= {0, NOT_THERE}


def exact(seen: Evidence) -> Finding:
    """The driver's own calls, down to single bytes."""
    answers = seen.told["answers"]
    conditions = {
        **loaded(seen),
        "every refusal is CUDA_ERROR_OUT_OF_MEMORY": set(answers) == {OUT_OF_MEMORY},
        "each kind of piece was refused": len(answers) == PIECES,
        "nothing is left to allocate": seen.told["left"] < GRANULE,
        **in_the_books(seen, seen.told["held"], FILLED_PART),
        **_by_driver(seen),
    }
    return passed_if(conditions, memory_said(seen), memory_figures(seen))


def in_the_books(seen: Evidence, held: int, part: float) -> dict[str, bool]:
    """held: bytes that a program had at a time. part: of the limit, which is full then."""
    return {
        "never over the limit": max(seen.peak, held) <= seen.limit + ROUNDING,
        "what was had is in the books": seen.peak >= held,
        "the limit could be filled": seen.peak >= part * seen.limit,
    }


def total(held: int | Sequence[int]) -> int:
    return held if isinstance(held, int) else sum(held)


def filled(seen: Evidence) -> Finding:
    """A framework's allocator, in one process."""
    return passed_if(filling(seen), memory_said(seen), memory_figures(seen))


def filled_by(allocator: str) -> Callable[[Evidence], Finding]:
    """The same, by one of several allocators, which some releases do not have."""

    def judged(seen: Evidence) -> Finding:
        if seen.told["allocator"] != allocator:
            said = f"PyTorch takes the allocator {seen.told['allocator']!r}, not {allocator!r}"
            return Finding(Verdict.LOST, said, memory_figures(seen))
        return filled(seen)

    return judged


def shared(seen: Evidence) -> Finding:
    """Several processes, one limit."""
    count = len(seen.told["held"])
    # A driver that names no process (gVisor, MIG) may not let the manager tell them apart either.
    named = seen.driver is not None
    known = {"the manager knows all processes": seen.processes >= count} if named else {}
    said = f"{count} processes: {memory_said(seen)}"
    return passed_if(filling(seen) | known, said, memory_figures(seen))


def filling(seen: Evidence) -> dict[str, bool]:
    return {
        **loaded(seen),
        "refused as out of memory": bool(seen.told["refused"]),
        **in_the_books(seen, total(seen.told["held"]), FILLED_PART),
        "it lives on": bool(seen.told["alive"]),
        **_by_driver(seen),
    }


def charged_for_the_driver(seen: Evidence) -> Finding:
    """What the driver itself takes for a context and its modules counts, once it is measured."""
    free = seen.told["free"]
    charged = seen.told["total"] - free["measured"]
    figures = {"free": free, "charged": charged, "driver": seen.driver, "limit": seen.limit}
    if seen.driver is None:
        said = f"{mib(charged)} charged; the driver names no processes here"
        return Finding(Verdict.FIGURE, said, figures)
    conditions = {
        **loaded(seen),
        "what the driver takes is charged": charged >= seen.driver - AGREE,
        "no more than that is charged": charged <= seen.driver + AGREE,
    }
    said = (
        f"{mib(charged)} charged, {mib(seen.driver)} by the driver's account; "
        f"{(free['measured'] - free['context']) >> 20:+} MiB free since the context was made"
    )
    return passed_if(conditions, said, figures)


def consistent(seen: Evidence) -> Finding:
    """Every view of the GPU's memory is the container's."""
    views: Mapping[str, Mapping[str, int]] = seen.told["seen"]
    held: int = seen.told["held"]
    totals = {name: view["total"] for name, view in views.items()}
    totals |= {
        f"{name}'s device": view["device"] for name, view in views.items() if "device" in view
    }
    used = {name: amount for name, amount in map(_used, views.items()) if amount is not None}
    spread = max(used.values()) - min(used.values())
    wrong = [name for name, total in totals.items() if total != seen.limit]
    conditions = {
        **loaded(seen),
        f"the whole is the limit to all ({', '.join(wrong)} differ)": not wrong,
        "what is held is in all views": min(used.values()) >= held,
        "all views of what is used agree": spread <= AGREE,
        f"nvidia-smi works ({seen.told.get('nvidia_smi_failed')})": not seen.told.get(
            "nvidia_smi_failed"
        ),
    }
    said = f"{', '.join(views)}: {seen.limit >> 20} MiB, used within {spread >> 20} MiB"
    return passed_if(conditions, said, {"views": views, "spread": spread})


def graphs(seen: Evidence) -> Finding:
    worst, replays = seen.told["worst"], seen.told["replays"]
    conditions = {
        **loaded(seen),
        "each replay's result is that of the same work on the CPU": worst < LARGEST_ERROR,
        **paid(seen),
    }
    said = f"{replays} replays, worst relative error {worst:.1e}; {time_said(seen)}"
    return passed_if(conditions, said, {"replays": replays, "worst": worst, **time_figures(seen)})


def triton(seen: Evidence) -> Finding:
    conditions = {**loaded(seen), "the sum is right": seen.told["same"], **paid(seen)}
    said = f"Triton {seen.told['triton']}; {time_said(seen)}"
    return passed_if(conditions, said, time_figures(seen))


def forked(seen: Evidence) -> Finding:
    told = seen.told
    conditions = {
        **loaded(seen),
        "children that were forked before CUDA began compute": not any(told["children"]),
        "so does their parent": told["parent"] == 0,
        "children that were forked later end in order": not any(told["after"]),
    }
    count = len(told["children"]) + len(told["after"])
    return passed_if(conditions, f"{count} children and their parent", {})


def odd(seen: Evidence) -> Finding:
    """Pieces of an odd size, and all of it once more after all is freed."""
    refusals = seen.told["refusals"]
    conditions = {
        **loaded(seen),
        "refused as out of memory": bool(seen.told["refused"]),
        "what was freed can be had again at once": refusals == 0,
        **in_the_books(seen, seen.told["held"], FILLED_PART),
        **_by_driver(seen),
    }
    said = f"{memory_said(seen)}; {refusals} refusals of {seen.told['tries']} after all was freed"
    figures = memory_figures(seen) | {"refusals": refusals, "tries": seen.told["tries"]}
    return passed_if(conditions, said, figures)


def managed(seen: Evidence) -> Finding:
    """Managed memory, which NVML's figure of a process leaves out, and other memory beside it."""
    over = None if seen.gpu is None else seen.gpu - seen.limit
    conditions = {
        **loaded(seen),
        "refused as out of memory": bool(seen.told["refused"]),
        **in_the_books(seen, seen.told["held"], FILLED_PART),
        "managed memory hides nothing of the GPU's own figure": over is None or over <= RESERVED,
        **_by_driver(seen),
    }
    grown = "the GPU's own figure is not told" if over is None else f"GPU {over >> 20:+} MiB"
    figures = memory_figures(seen) | {"managed": seen.told["managed"]}
    return passed_if(conditions, f"{memory_said(seen)}; {grown} of the limit", figures)


def imported(seen: Evidence) -> Finding:
    """Memory of another process, opened through its handle: charged to its maker alone."""
    told = seen.told
    charged = told["before"] - told["after"]
    conditions = {
        **loaded(seen),
        "its maker is charged for it": told["total"] - told["before"] >= told["size"],
        "an importer is not charged for it": charged <= ROUNDING,
    }
    said = f"{seen.told['size'] >> 20} MiB imported, {charged >> 20} MiB less free a second later"
    return passed_if(conditions, said, {**seen.told})


def freed(seen: Evidence) -> Finding:
    """What a killed process held, and its neighbour may have again."""
    told = seen.told
    conditions = {
        **loaded(seen),
        "what the process held was charged": told["before"] - told["during"] >= told["size"],
        "it is free again within a second": told["after"] - told["during"] >= told["size"]
        and told["freed_s"] <= FREED_SECONDS * patience(),
        "it can be had again": told["again"],
    }
    said = f"{mib(told['size'])} free again {told['freed_s'] * 1e3:.0f} ms after the kill"
    return passed_if(conditions, said, {**told})


def works(bare: Mapping[str, Any], seen: Evidence) -> Finding:
    """A way of computing that some drivers lack; its launches are to be paid for. bare: what the
    program said without the shim.
    """
    if (lacking := seen.told.get("lacking")) is not None:
        if "lacking" not in bare:
            return Finding(Verdict.FAIL, f"behind the shim alone: {lacking}", {**seen.told})
        return Finding(Verdict.ABSENT, lacking, {**seen.told})
    figures = {**seen.told, **time_figures(seen), "degraded": sorted(seen.degraded)}
    return passed_if({**loaded(seen), **paid(seen)}, time_said(seen), figures)


def paid(seen: Evidence) -> dict[str, bool]:
    """For as long as the GPU was kept busy, by a program that nothing held back."""
    least, most = (part * seen.told["busy_s"] * 1e9 for part in PAID_PARTS)
    return {
        "the GPU was busy": seen.told["busy_s"] > 0,
        "what is paid for is the time that the GPU was busy": least <= seen.charged_ns <= most,
    }


def time_said(seen: Evidence) -> str:
    return f"{seen.charged_ns / 1e6:.0f} ms paid for, busy {seen.told['busy_s'] * 1e3:.0f} ms"


def time_figures(seen: Evidence) -> dict[str, Any]:
    return {"charged_ns": seen.charged_ns, "busy_s": seen.told["busy_s"]}


def loaded(seen: Evidence) -> dict[str, bool]:
    impaired = seen.degraded & IMPAIRED
    return {
        SHIM_THERE: seen.shim,
        f"the shim is not impaired ({', '.join(sorted(impaired))})": not impaired,
    }


def _used(view: tuple[str, Mapping[str, int]]) -> tuple[str, int | None]:
    name, fields = view
    if "used" in fields:
        return name, fields["used"]
    return name, fields["total"] - fields["free"] if "free" in fields else None


def _by_driver(seen: Evidence) -> dict[str, bool]:
    """What the driver itself says was held, where it says anything."""
    if seen.driver is None:
        return {}
    return {"the driver itself never saw more than the limit": seen.driver <= seen.limit + ROUNDING}


def memory_said(seen: Evidence) -> str:
    driver = "the driver names no processes here"
    if seen.driver is not None:
        driver = f"{mib(seen.driver)} by the driver's account"
    return f"limit {mib(seen.limit)}: at most {mib(seen.peak)} held, {driver}"


def memory_figures(seen: Evidence) -> dict[str, Any]:
    return {
        "limit": seen.limit,
        "peak": seen.peak,
        "driver": seen.driver,
        "held": seen.told["held"],
        "denied": seen.denied,
        "degraded": sorted(seen.degraded),
        "gpu": seen.gpu,
    }


def mib(size: int) -> str:
    whole, rest = divmod(size, 1 << 20)
    return f"{whole} MiB" + (f" + {rest} B" if rest else "")
