"""Take what a run of the GPU check brought into the repository: `adopt_gpu_facts.py RESULTS`.

tests/native/table/recorded/           the driver's exports and entry points, if that version is new
docs/gpu/<model>-<driver>/       facts.jsonl and checks.jsonl
"""

import argparse
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PREFIX: Final = "recorded-"
LISTS: Final = ("facts.jsonl", "checks.jsonl")


def adopt(results: Path, root: Path) -> list[Path]:
    """The files that were written."""
    written = []
    with tarfile.open(results / "logs.tar.gz") as archive:
        for member in archive.getmembers():
            name, file = Path(member.name).name, archive.extractfile(member)
            target = root / "tests/native/table/recorded" / name.removeprefix(PREFIX)
            if name.startswith(PREFIX) and file is not None and not target.exists():
                target.write_bytes(file.read())
                written.append(target)
    folder = root / "docs/gpu" / folder_name(results)
    folder.mkdir(parents=True, exist_ok=True)
    return written + [Path(shutil.copy2(results / name, folder / name)) for name in LISTS]


def folder_name(results: Path) -> str:
    """By what NVML told of the GPU and its driver; `unknown` for what it did not."""
    rows = map(json.loads, (results / "facts.jsonl").read_text().splitlines())
    seen: dict[str, Any] = next((row for row in rows if row["fact"] == "NVML held open"), {})
    (name, _), *_ = seen.get("gpus") or [("unknown", "")]
    text = f"{name}-{seen.get('driver') or 'unknown'}"
    return re.sub(r"[^a-z0-9.]+", "-", text.lower())


def main() -> None:
    parser = argparse.ArgumentParser(prog="adopt-gpu-facts", description=__doc__)
    parser.add_argument("results", type=Path, help="the folder that gpu-check.sh wrote")
    for path in adopt(parser.parse_args().results, ROOT):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
