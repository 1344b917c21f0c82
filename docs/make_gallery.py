"""docs/gallery.md from examples/: what each is about, its YAML, and what it printed.

    python docs/make_gallery.py            runs every example and writes the page anew
    python docs/make_gallery.py --check    runs nothing; fails where page and files differ

An example opens with a comment of what it shows, whose last line is the command that runs it.
What was printed is of one run, on simulated GPUs, and is not compared: figures differ each time.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "docs" / "gallery.md"
COMMAND: Final = "# Run it: "
SECONDS: Final = 120
HEAD: Final = """# Examples

Written by `python docs/make_gallery.py` from [`examples/`](../examples): change it there.

`make demo` runs all of them, on simulated nodes. Each is a pod as it would be written for a
cluster; only its image and its programs are those of the simulation (`cuda-play` and `cuda-work`
do what their words say). Below each stands what it printed in one run. The GPUs are simulated, and
so are all figures; the agent, the shim and the processes are real.

What a container held contains what the driver takes for its program, a CUDA context and code: on
these GPUs 310 to 430 MiB. So a program that allocates 1 GiB needs a larger limit.

In a clone `gpumanager` is `.venv/bin/gpumanager`, unless you put that folder into `PATH`:
`export PATH=$PWD/.venv/bin:$PATH`.
"""
ORDER: Final = (
    "half-a-gpu",
    "thirty-and-sixty",
    "idle-share-is-lent",
    "bursts-beside-training",
    "greedy-memory",
    "memory-only",
    "two-containers",
    "whole-gpu",
    "nvlink-pair",
    "one-numa-node",
    "four-linked-gpus",
    "third-party",
    "impossible",
)
"""As a reader meets them; an example that is not named here comes last."""

SPELT: Final = {"gpu": "GPU", "gpus": "GPUs", "numa": "NUMA", "nvlink": "NVLink"}
OUTPUT: Final = re.compile(r"(?<=\n```text\n).*?(?=```\n)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """about: its comment. command: what runs it, as a reader types it. pods: the YAML below."""

    name: str
    about: str
    command: str
    pods: str

    @property
    def title(self) -> str:
        words = self.name.replace("-", " ").capitalize()
        return re.sub(
            "gpu|numa|nvlink", lambda found: SPELT[found[0].lower()], words, flags=re.IGNORECASE
        )


def read(path: Path) -> Example:
    """Raises SystemExit where it does not open as an example does."""
    lines = path.read_text().splitlines()
    comment = [line for line in lines[: _first_other(lines)] if line != "#"]
    if not comment or not comment[-1].startswith(COMMAND):
        raise SystemExit(f"{path}: the last line of its opening comment has to be `{COMMAND}…`")
    return Example(
        name=path.stem,
        about="\n".join(line.removeprefix("#").strip() for line in comment[:-1]),
        command=comment[-1].removeprefix(COMMAND),
        pods="\n".join(lines[len(comment) :]) + "\n",
    )


def _first_other(lines: list[str]) -> int:
    return next(n for n, line in enumerate(lines) if not line.startswith("#"))


def examples() -> list[Example]:
    found = {path.stem: read(path) for path in (ROOT / "examples").glob("*.yaml")}
    known = [name for name in ORDER if name in found]
    return [found[name] for name in (*known, *sorted(found.keys() - set(known)))]


def page(outcome: Callable[[Example], str]) -> str:
    """outcome: what an example printed."""
    return "\n".join([HEAD, *(_section(one, outcome(one)) for one in examples())])


def _section(one: Example, printed: str) -> str:
    return (
        f"## {one.title}\n\n{one.about}\n\n```yaml\n{one.pods}```\n\n"
        f"```sh run\n{one.command}\n```\n\n```text\n{printed}```\n"
    )


def run(one: Example) -> str:
    """What happened, then the table."""
    words = shlex.split(one.command)
    print(one.command, file=sys.stderr)
    finished = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    lines = (finished.stderr + finished.stdout).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def without_outcomes(text: str) -> str:
    return OUTPUT.sub("", text)


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        same = without_outcomes(TARGET.read_text()) == page(lambda _: "")
        print("up to date" if same else f"{TARGET}: not what examples/ give; python {__file__}")
        return int(not same)
    TARGET.write_text(page(run))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
