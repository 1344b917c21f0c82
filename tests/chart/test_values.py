"""Every value of the chart is described once, and what is made of that is up to date."""

import fnmatch
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import gpumanager
from gpumanager.node_status.other_managers import RESOURCES
from gpumanager.placement.preference import read_gpu_policy, read_preference
from gpumanager.units import MEMORY_BLOCK, parse_bytes
from tests.chart import generate, values

README = values.CHART / "README.md"
TEXT = (values.CHART / "values.yaml").read_text()
VALUES = values.described(TEXT)
TEMPLATES = "\n".join(one.read_text() for one in values.CHART.glob("templates/**/*.*"))


def test_every_value_has_its_sentence() -> None:
    assert values.undescribed(VALUES, TEXT) == []


def test_a_value_without_a_sentence_is_found() -> None:
    text = "# A part.\npart:\n  # One.\n  one: 1\n  two: 2\n"

    assert values.undescribed(values.described(text), text) == ["part.two"]


def test_a_sentence_is_one() -> None:
    wrong = [one for one in VALUES if not re.fullmatch(r"[A-Z`/].{7,}\.", one.sentence)]

    assert [(one.path, one.sentence) for one in wrong] == []


def test_a_value_is_read_by_a_template() -> None:
    def read(path: str) -> bool:
        group, _, name = path.rpartition(".")
        last = group.rpartition(".")[2]
        asked = rf"\.Values(\.\w+)*\.{last}\b|\.Values\.{path}\b"
        return all(re.search(one, TEMPLATES) for one in (asked, rf"\.{name}\b"))

    assert [one.path for one in VALUES if not one.group and not read(one.path)] == []


def test_the_notes_name_helm_test_on_the_condition_of_its_pod() -> None:
    pod, notes = (values.CHART / "templates" / name for name in ("tests/limit.yaml", "NOTES.txt"))
    condition = next(line for line in pod.read_text().splitlines() if line.startswith("{{- if"))

    before, told, _ = notes.read_text().partition("helm test {{ .Release.Name }}")
    assert told
    assert before[before.rindex("{{- if") :].startswith(condition)


def test_the_notes_warn_of_the_other_managers_that_the_agent_looks_for() -> None:
    notes = (values.CHART / "templates" / "NOTES.txt").read_text()
    words = set(re.findall(r'"([a-z0-9.]*/[a-z.-]+)"', notes))

    looked_for = {pattern.removeprefix("*").removesuffix("*") for pattern in RESOURCES}
    assert looked_for - words == {"volcano.sh/vgpu-number"}, "which /vgpu-number covers"


POLICIES = (
    *("", "binpack", "least-waste=0.7,topology=0.3", "link-strict", "numa=strict", "topology"),
    *("spread=1000", "spread=1000.5", "spread=0", "spread=.5", "binpack=strict", "binpack=", "foo"),
    *("binpack spread", "binpack, spread=2", "topology-aware=0.25", "spread-strict", "=1"),
)
SIZES = ("1GiB", "1 GiB", "512MiB", "255MiB", "256MiB", "2GB", "2Gi", "1.5GiB", "400000000", "1")


def test_the_schema_takes_the_policies_that_the_extender_takes() -> None:
    pattern, words = values.POLICY, values.BY_PATH["extender.gpuPolicy"]["enum"]

    assert [one for one in POLICIES if re.fullmatch(pattern[1:-1], one)] == [
        one for one in POLICIES if accepts(read_preference, one)
    ]
    assert [one for one in POLICIES if one in words] == [
        one for one in POLICIES if accepts(read_gpu_policy, one)
    ]


def test_the_schema_takes_the_sizes_that_the_programs_take() -> None:
    reserved = values.BY_PATH["agent.reservedMemory"]["pattern"]
    missing = values.BY_PATH["webhook.defaultMemory"]["pattern"]

    sizes = [one for one in SIZES if accepts(parse_bytes, one)]
    assert [one for one in SIZES if re.search(reserved, one)] == sizes
    assert [one for one in SIZES if re.search(missing, one)] == [
        one for one in sizes if parse_bytes(one) >= MEMORY_BLOCK
    ]


def accepts(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def test_the_schema_is_made_of_the_values() -> None:
    found = (values.CHART / "values.schema.json").read_text()

    assert found == generate.schema_text(), "python -m tests.chart.generate"


def test_nothing_beside_the_described_values_is_let_in() -> None:
    def closed(found: values.Schema) -> bool:
        inside = [one for one in found["properties"].values() if "properties" in one]
        return found["additionalProperties"] is False and all(map(closed, inside))

    assert closed(json.loads(generate.schema_text()))


def test_the_table_of_the_docs_is_made_of_the_values() -> None:
    page = generate.PAGE.read_text()

    assert page == generate.page_text(page), "python -m tests.chart.generate"


@pytest.mark.parametrize("path", sorted((values.CHART / "ci").iterdir()), ids=lambda one: one.name)
def test_a_case_sets_values_that_exist(path: Path) -> None:
    known = {one.path for one in VALUES}

    def unknown(found: object, at: str) -> list[str]:
        if at and at not in known:
            return [at]
        inside = found.items() if isinstance(found, dict) and (not at or _is_group(at)) else ()
        return [wrong for name, one in inside for wrong in unknown(one, f"{at}.{name}".lstrip("."))]

    assert unknown(yaml.safe_load(path.read_text()), "") == []


def _is_group(path: str) -> bool:
    return any(one.path == path and one.group for one in VALUES)


def test_the_chart_is_of_the_programs_version() -> None:
    chart = yaml.safe_load((values.CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == gpumanager.__version__
    assert chart["version"] == re.sub(r"\.dev", "-dev.", gpumanager.__version__)


def test_the_readme_of_the_chart_names_values_and_defaults_that_are_there() -> None:
    rows = re.findall(r"^\| `([\w.*]+)` \| (.+?) \|", README.read_text(), re.MULTILINE)
    defaults = {one.path: one.default for one in VALUES if not one.group}

    assert len(rows) >= 8
    for path, shown in rows:
        named = [one for one in defaults if fnmatch.fnmatch(one, path)]
        assert named, path
        if shown.startswith("`"):
            said = yaml.safe_load(shown.strip("`"))
            assert {json.dumps(defaults[one]) for one in named} == {json.dumps(said)}, path
