"""Every value of the chart is described once, and what is made of that is up to date."""

import json
import re
from pathlib import Path

import pytest
import yaml

import gpumanager
from tests.chart import generate, values

TEXT = (values.CHART / "values.yaml").read_text()
VALUES = values.described(TEXT)
TEMPLATES = "\n".join(one.read_text() for one in values.CHART.glob("templates/**/*.*"))


def test_every_value_has_its_sentence() -> None:
    assert values.undescribed(VALUES, TEXT) == []


def test_a_value_without_a_sentence_is_found() -> None:
    text = "# A part.\npart:\n  # One.\n  one: 1\n  two: 2\n"

    assert values.undescribed(values.described(text), text) == ["part.two"]


def test_a_sentence_is_one() -> None:
    wrong = [one for one in VALUES if not re.fullmatch(r"[A-Z`/].{8,}\.", one.sentence)]

    assert [(one.path, one.sentence) for one in wrong] == []


def test_a_value_is_read_by_a_template() -> None:
    def read(path: str) -> bool:
        group, _, name = path.rpartition(".")
        last = group.rpartition(".")[2]
        asked = rf"\.Values(\.\w+)*\.{last}\b|\.Values\.{path}\b"
        return all(re.search(one, TEMPLATES) for one in (asked, rf"\.{name}\b"))

    assert [one.path for one in VALUES if not one.group and not read(one.path)] == []


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
