"""Make anew what is made of the chart: `python -m tests.chart.generate`.

charts/gpu-manager/values.schema.json   of values.yaml
docs/install.md                         its table of values, of values.yaml
tests/chart/golden/NAME.yaml            of ci/NAME-values.yaml, by a real helm
deploy/gpu-manager.yaml                 for those without helm, by a real helm
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.chart import helm_program, values

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = Path(__file__).parent / "golden"
PAGE: Final = ROOT / "docs" / "install.md"
BEGINS: Final = "<!-- values: made by tests/chart/generate.py -->\n"
ENDS: Final = "<!-- end of values -->\n"
RAW: Final = ROOT / "deploy" / "gpu-manager.yaml"
RAW_HEAD: Final = """\
# gpu-manager without Helm, made of charts/gpu-manager by tests/chart/generate.py.
# What has to be written here before it is applied: docs/install.md.
"""
SECRETS: Final = "extender.clientCertificate.secretName=gpu-manager-extender-client"
RAW_VALUES: Final = ("--set", f"extender.tls.source=secret,{SECRETS}")

_RANDOM: Final = re.compile(r"(?m)^(  (?:ca\.crt|tls\.crt|tls\.key)): \S+$")
_HELMS: Final = re.compile(
    r"(?m)^ *(?:# Source: .*|helm\.sh/chart: .*|app\.kubernetes\.io/managed-by: .*)\n"
)
_FILES: Final = re.compile(
    r"(?ms)^---\n# Source: \S+/monitoring/(?:dashboards|rules)\.yaml\n.*?(?=^---\n|\Z)"
)
ONCE: Final = "bWFkZSBieSBoZWxt"
"""Stands for what helm makes at random: `made by helm`."""


def cases() -> list[str]:
    return sorted(one.name.removesuffix("-values.yaml") for one in (values.CHART / "ci").iterdir())


def schema_text() -> str:
    found = values.described((values.CHART / "values.yaml").read_text())
    return json.dumps(values.schema(found), indent=2) + "\n"


def page_text(page: str) -> str:
    """The page with the table as it is to be."""
    before, _, rest = page.partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    found = values.described((values.CHART / "values.yaml").read_text())
    return f"{before}{BEGINS}\n{values.table(found)}\n{ENDS}{after}"


def golden_text(case: str) -> str:
    """Without dashboards and rules, which are installed as they lie there (`test_helm`)."""
    made = helm_program.rendered("--values", f"ci/{case}-values.yaml")
    return _RANDOM.sub(rf"\1: {ONCE}", _FILES.sub("", made))


def raw_text() -> str:
    return RAW_HEAD + _HELMS.sub("", helm_program.rendered(*RAW_VALUES))


def products() -> Iterator[tuple[Path, str]]:
    yield values.CHART / "values.schema.json", schema_text()
    yield PAGE, page_text(PAGE.read_text())
    if helm_program.found() is None:
        sys.stderr.write(f"{helm_program.MISSING}: goldens and raw YAML stay as they are\n")
        return
    yield from ((GOLDEN / f"{case}.yaml", golden_text(case)) for case in cases())
    yield RAW, raw_text()


if __name__ == "__main__":
    for path, text in products():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
