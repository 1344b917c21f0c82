"""The tests, a package: programs that tests start import `tests.native…` too, from ROOT."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
