"""Make anew what is made of the chart: `python -m tests.chart.generate`.

charts/gpu-manager/values.schema.json   of values.yaml
docs/install.md                         its table of values, of values.yaml
tests/chart/golden/default.yaml         of ci/default-values.yaml, by a real helm
tests/chart/golden/CASE.diff            what ci/CASE-values.yaml changes of it, by a real helm
deploy/gpu-manager.yaml                 for those without helm, by a real helm
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.chart import differences, goldens, helm_program, values

PAGE: Final = ROOT / "docs" / "install.md"
BEGINS: Final = "<!-- values: made by tests/chart/generate.py -->\n"
ENDS: Final = "<!-- end of values -->\n"
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
    text = _RANDOM.sub(rf"\1: {ONCE}", _FILES.sub("", made))
    if case == "default":
        return text
    return differences.difference(goldens.default_of(case), differences.objects(text))


def raw_text() -> str:
    return RAW_HEAD + _HELMS.sub("", helm_program.rendered(*RAW_VALUES))


def products() -> Iterator[tuple[Path, str]]:
    yield values.CHART / "values.schema.json", schema_text()
    yield PAGE, page_text(PAGE.read_text())
    if helm_program.found() is None:
        sys.stderr.write(f"{helm_program.MISSING}: goldens and raw YAML stay as they are\n")
        return
    for case in sorted(goldens.CASES, key="default".__ne__):  # the others differ from that
        yield goldens.golden(case), golden_text(case)
    yield goldens.RAW, raw_text()


if __name__ == "__main__":
    for path, text in products():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
