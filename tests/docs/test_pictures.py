"""The pictures of pages and dashboards are no older than what they show."""

import pictures
import pytest


def test_no_picture_is_older_than_what_it_shows() -> None:
    assert pictures.stale() == []


def test_a_page_that_changed_makes_its_pictures_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pictures.PAGES, "web.png", "cluster")

    (sentence,) = pictures.stale()

    assert sentence.startswith("web.png: taken on ")
