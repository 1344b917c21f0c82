"""Take what runs of the GPU check brought into the repository: `adopt_gpu_facts.py RESULTS…`.

tests/native/table/recorded/           the driver's exports and entry points, if that version is new
docs/gpu/<model>-<driver>/       facts.jsonl and checks.jsonl, of all these runs
"""

import argparse
import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PREFIX: Final = "recorded-"
LISTS: Final = ("facts.jsonl", "checks.jsonl")


def adopt(runs: Sequence[Path], root: Path) -> list[Path]:
    """The files that were written. runs: of the same GPU and driver; their lines in this order."""
    written = []
    for results in runs:
        with tarfile.open(results / "logs.tar.gz") as archive:
            for member in archive.getmembers():
                name, file = Path(member.name).name, archive.extractfile(member)
                target = root / "tests/native/table/recorded" / name.removeprefix(PREFIX)
                if name.startswith(PREFIX) and file is not None and not target.exists():
                    target.write_bytes(file.read())
                    written.append(target)
    names = {folder_name(results) for results in runs}
    if len(names) != 1:
        raise SystemExit(f"adopt-gpu-facts: not of one GPU and driver: {', '.join(sorted(names))}")
    folder = root / "docs/gpu" / names.pop()
    folder.mkdir(parents=True, exist_ok=True)
    for name in LISTS:
        (folder / name).write_text("".join((results / name).read_text() for results in runs))
        written.append(folder / name)
    return written


def folder_name(results: Path) -> str:
    """By what NVML told of the GPU and its driver; `unknown` for what it did not."""
    rows = map(json.loads, (results / "facts.jsonl").read_text().splitlines())
    seen: dict[str, Any] = next((row for row in rows if row["fact"] == "NVML held open"), {})
    (name, _), *_ = seen.get("gpus") or [("unknown", "")]
    text = f"{name}-{seen.get('driver') or 'unknown'}"
    return re.sub(r"[^a-z0-9.]+", "-", text.lower())


def main() -> None:
    parser = argparse.ArgumentParser(prog="adopt-gpu-facts", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="a folder that gpu-check.sh wrote")
    for path in adopt(parser.parse_args().results, ROOT):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
