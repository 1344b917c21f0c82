"""The pages that people see: one HTML file each, that loads nothing from elsewhere.

A page is written as any page is, with its style and its scripts in files beside it, and is put
together when it is first asked for: no build step, and one answer is all a browser needs. It is
sent with a Content-Security-Policy that names the very texts that may run, by their digests: what
slips into the page from elsewhere is not run, and whatever runs can reach nobody but this server.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

FILES: Final = Path(__file__).parent / "web"
KIND: Final = "text/html; charset=utf-8"
STYLE: Final = re.compile(r'<link rel="stylesheet" href="([a-z.]+)">')
SCRIPT: Final = re.compile(r'<script src="([a-z.]+)"></script>')
POLICY: Final = (
    "default-src 'none'; style-src {styles}; script-src {scripts}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class WebPage:
    """body: the whole document. fields: of the answer's head, beside its kind."""

    body: bytes
    fields: Mapping[str, str]


@lru_cache(maxsize=2)
def web_page(name: str) -> WebPage:
    """Return the page `node` or `cluster`; it is made once."""
    html = _read(f"{name}.html")
    html, styles = _inlined(html, STYLE, "style")
    html, scripts = _inlined(html, SCRIPT, "script")
    policy = POLICY.format(styles=" ".join(styles), scripts=" ".join(scripts))
    return WebPage(html.encode(), {"Content-Security-Policy": policy, **CAREFUL})


CAREFUL: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""For whatever a browser may be shown."""


def _inlined(html: str, link: re.Pattern[str], tag: str) -> tuple[str, list[str]]:
    """Return the page with these files inside, and their digests."""
    digests: list[str] = []

    def put(found: re.Match[str]) -> str:
        content = "\n" + _read(found[1])
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        digests.append(f"'sha256-{digest}'")
        return f"<{tag}>{content}</{tag}>"

    return link.sub(put, html), digests


def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")
