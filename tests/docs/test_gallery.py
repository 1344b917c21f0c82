"""docs/gallery.md is what examples/ and its script give; every example says what it shows."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from gpumanager.sim.manifest.pods import read_manifest
from tests.docs.pages import DOCS, ROOT

SCRIPT = DOCS / "make_gallery.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_gallery", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_gallery"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_examples_are(script: ModuleType) -> None:
    page = (DOCS / "gallery.md").read_text()

    assert script.without_outcomes(page) == script.page(lambda _: "")


def test_an_example_opens_with_what_it_shows_and_how_to_run_it(
    script: ModuleType, subtests: pytest.Subtests
) -> None:
    for path in EXAMPLES:
        with subtests.test(path.stem):
            example = script.read(path)
            assert len(example.about.split()) >= 10
            assert example.command.startswith("gpumanager simulate ")
            assert example.command.endswith(f" examples/{path.name}")
            assert read_manifest([path]).pods


def test_what_was_printed_is_of_the_pods_of_the_example(
    script: ModuleType, subtests: pytest.Subtests
) -> None:
    page = (DOCS / "gallery.md").read_text()
    for path in EXAMPLES:
        with subtests.test(path.stem):
            section = page.split(f"\n## {script.read(path).title}\n")[1].split("\n## ")[0]
            printed = script.OUTPUT.findall(section)
            names = [one["metadata"]["name"] for one in yaml.safe_load_all(path.read_text())]
            assert len(printed) == 1
            assert [name for name in names if name not in printed[0]] == []


def test_the_demo_runs_every_example_once(script: ModuleType) -> None:
    said = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ran = re.findall(r"examples/([a-z0-9-]+)\.yaml", said.stdout)

    assert sorted(ran) == [path.stem for path in EXAMPLES]
    machines = re.findall(r"for machine in ([^;]+);", said.stdout)[0].split()
    named = {match[1] for one in EXAMPLES if (match := MACHINE.search(script.read(one).command))}
    assert set(machines) == named


MACHINE = re.compile(r"--machine (\S+)")


def test_an_example_without_its_command_is_refused(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("# It shows nothing.\nkind: Pod\n")

    with pytest.raises(SystemExit, match=r"one\.yaml: the last line of its opening comment"):
        script.read(tmp_path / "one.yaml")
