"""The glossary names files and classes that exist."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
PATH: Final = re.compile(r"`([a-z_/]+(?:\.(?:py|c))|native/[a-z/]+)`")
CLASS: Final = re.compile(r"`([A-Z][A-Za-z]+)`")


def absent(text: str) -> list[str]:
    """Files and classes that the text names and the tree does not have."""
    code = "\n".join(path.read_text() for path in (ROOT / "gpumanager").rglob("*.py"))
    paths = [name for name in PATH.findall(text) if not _exists(name)]
    classes = [name for name in CLASS.findall(text) if not re.search(rf"\bclass {name}\b", code)]
    return [*paths, *classes]


def _exists(name: str) -> bool:
    return (ROOT / name).exists() or (ROOT / "gpumanager" / name).exists()


def test_the_glossary_names_what_is_there() -> None:
    text = GLOSSARY.read_text()

    assert len(PATH.findall(text)) > 20
    assert absent(text) == []


def test_a_file_and_a_class_that_are_not_there_are_found() -> None:
    assert absent("`grants/nothing.py` and `NoSuchClass`") == ["grants/nothing.py", "NoSuchClass"]
