"""A real Chromium, and a tab in it that notices everything a user would not like."""

import importlib.util
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

HOSTILE = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>"\'&lt;'
PHONE, DESK = 360, 1180
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 120.0
"""For what takes a moment, on a machine that does much else."""


def program() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def missing() -> str:
    """What is, in a sentence; empty where nothing is."""
    if not all(map(importlib.util.find_spec, ("playwright", "axe_playwright_python"))):
        return "the extra `browser` is missing: pip install 'gpu-manager[browser]'"
    if program() is None:
        return f"no Chromium on this machine: none of {', '.join(NAMES)}"
    return ""


@dataclass
class Tab:
    """One page in the browser. said: its console, from warnings on. asked: what it requested."""

    page: Any
    origin: str
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def hear(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.said.append(message.text)

    async def refuse(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    async def has(self, text: str) -> None:
        """Waits until it is to be read there; fails after a while."""
        found = "text => document.body.innerText.includes(text)"
        await self._when(found, text)

    async def counts(self, selector: str, count: int) -> None:
        """Waits until there are so many."""
        found = "([selector, count]) => document.querySelectorAll(selector).length === count"
        await self._when(found, [selector, count])

    async def says(self, selector: str, text: str) -> None:
        """Waits until the first of these is that text."""
        found = "([selector, text]) => document.querySelector(selector)?.textContent === text"
        await self._when(found, [selector, text])

    async def state(self, words: str) -> None:
        """Waits until the page says so of itself."""
        found = "words => document.getElementById('state').textContent.includes(words)"
        await self._when(found, words)

    async def _when(self, found: str, words: object) -> None:
        await self.page.wait_for_function(found, arg=words, polling=100)

    async def overhang(self) -> int:
        """CSS pixels by which the page is wider than the window."""
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(await self.page.evaluate(wider))

    async def barriers(self) -> list[str]:
        """What axe-core finds that keeps people out, contrast below WCAG AA among it."""
        from axe_playwright_python.async_playwright import Axe

        found = await Axe().run(self.page)
        return [
            f"{rule['id']} ({rule['impact']}): {node['html'][:120]}"
            for rule in found.response["violations"]
            for node in rule["nodes"]
        ]

    def strangers(self) -> set[str]:
        """Hosts other than the page's own that it asked for something."""
        every = (urlsplit(url) for url in self.asked)
        return {f"{one.scheme}://{one.netloc}" for one in every if one.scheme != "data"} - {
            self.origin.rstrip("/")
        }


def quiet(tab: Tab) -> None:
    """Nothing went wrong, nobody else was asked, nothing popped up."""
    assert tab.said == []
    assert tab.strangers() == set()
    assert tab.dialogs == []


Open = Callable[..., AbstractAsyncContextManager[Tab]]
