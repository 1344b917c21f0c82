"""Take what runs of the GPU check brought into the repository: `adopt_gpu_facts.py RESULTS…`.

tests/native/table/recorded/     the driver's exports and entry points, if that version is new
docs/gpu/<model>-<driver>/       facts.jsonl and checks.jsonl

Several folders are runs of different stages on the same GPU, the earliest first: of a check that
two of them have, the later one counts. What names the machine is left out: its files, its kernel,
paths, UUIDs.
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
FACTS, CHECKS = "facts.jsonl", "checks.jsonl"
UUID: Final = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OF_THE_MACHINE: Final = {"path", "uname", "uid", "pids"}

Row = dict[str, Any]


def adopt(results: Sequence[Path], root: Path) -> list[Path]:
    """The files that were written. Raises ValueError where the runs are of different GPUs."""
    names = {folder_name(folder) for folder in results}
    if len(names) != 1:
        raise ValueError(f"runs of different GPUs or drivers: {', '.join(sorted(names))}")
    written = [path for folder in results for path in record(folder, root)]
    folder = root / "docs/gpu" / names.pop()
    folder.mkdir(parents=True, exist_ok=True)
    facts = [row for one in results for row in rows(one / FACTS) if row["fact"] != "file"]
    latest = {check: one for one in results for check in map(key, rows(one / CHECKS))}
    checks = [
        row
        for one in results
        for row in rows(one / CHECKS)
        if latest[key(row)] == one and row["check"] != "system"
    ]
    for name, content in ((FACTS, facts), (CHECKS, checks)):
        lines = dict.fromkeys(json.dumps(public(row)) for row in content)
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
        written.append(folder / name)
    return written


def record(results: Path, root: Path) -> list[Path]:
    """The driver's tables, if its version has none yet."""
    written = []
    with tarfile.open(results / "logs.tar.gz") as archive:
        for member in archive.getmembers():
            name, file = Path(member.name).name, archive.extractfile(member)
            target = root / "tests/native/table/recorded" / name.removeprefix(PREFIX)
            if name.startswith(PREFIX) and file is not None and not target.exists():
                target.write_bytes(file.read())
                written.append(target)
    return written


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def key(row: Row) -> tuple[str, str]:
    return row["stage"], row["check"]


def public(value: Any) -> Any:
    """Without what names the machine."""
    if isinstance(value, dict):
        return {name: public(one) for name, one in value.items() if name not in OF_THE_MACHINE}
    if isinstance(value, list):
        return [public(one) for one in value]
    return UUID.sub("GPU-…", value) if isinstance(value, str) else value


def folder_name(results: Path) -> str:
    """By what NVML told of the GPU and its driver; `unknown` for what it did not."""
    found = rows(results / FACTS)
    seen: Row = next((row for row in found if row["fact"] == "NVML held open"), {})
    (name, _), *_ = seen.get("gpus") or [("unknown", "")]
    text = f"{name}-{seen.get('driver') or 'unknown'}"
    return re.sub(r"[^a-z0-9.]+", "-", text.lower())


def main() -> None:
    parser = argparse.ArgumentParser(prog="adopt-gpu-facts", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="folders that gpu-check.sh wrote")
    try:
        written = adopt(parser.parse_args().results, ROOT)
    except (OSError, ValueError) as error:  # no such folder, or of different GPUs
        parser.error(str(error))
    for path in written:
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
