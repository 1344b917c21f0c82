"""What the pages of `docs/` tell to install: the objects of their YAML, as they stand there."""

from typing import Any, Final

import yaml

from tests import ROOT

DOCS: Final = ROOT / "docs"


def documented(page: str, kind: str) -> dict[str, Any]:
    """The one object of this kind on a page."""
    blocks = (DOCS / page).read_text().split("```yaml\n")[1:]
    objects = [one for block in blocks for one in yaml.safe_load_all(block.split("```")[0])]
    (found,) = (one for one in objects if isinstance(one, dict) and one.get("kind") == kind)
    return dict(found)
