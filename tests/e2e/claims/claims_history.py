"""What containers that run may have of each GPU by the claims that they were given, added up.

A claim may be gone while its containers run on: its pod was deleted by force, or its finalizers
were removed. What it was given is remembered here, from the API server alone; who runs is seen in
/proc.
"""

import contextlib
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final, Self

from tests.e2e.claims.real_claims import CLAIMS, Allocated, Device, allocated
from tests.e2e.cluster.api_client import ApiClient, ApiError

PERIOD: Final = 0.1
VARIABLE: Final = b"POD_UID="


class ClaimsHistory:
    """As long as it is entered, what claims are given is looked at all the time."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._given: dict[str, tuple[Allocated, ...]] = {}
        self._claims_of: dict[str, set[str]] = {}
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def held(self) -> dict[Device, Counter[str]]:
        """By the containers that run now; a claim that several use counts once."""
        claims = {claim for uid in running_pods() for claim in self._claims_of.get(uid, ())}
        held: dict[Device, Counter[str]] = {}
        for one in (each for claim in claims for each in self._given[claim]):
            held.setdefault(one.device, Counter()).update(one.consumed)
        return held

    def unknown(self) -> set[str]:
        """Pods that run and of which no claim was ever seen."""
        return running_pods() - self._claims_of.keys()

    def _look(self) -> None:
        while not self._left.wait(PERIOD):
            with contextlib.suppress(ApiError):
                for claim in self._api.get(CLAIMS)["items"]:
                    self._remember(claim)

    def _remember(self, claim: dict[str, Any]) -> None:
        uid = claim["metadata"]["uid"]
        if given := allocated(claim):
            self._given[uid] = given
            for user in claim["status"].get("reservedFor", ()):
                self._claims_of.setdefault(user["uid"], set()).add(uid)


def running_pods() -> set[str]:
    """UIDs of those whose containers have a process now: the tests' containers know their own."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "environ").read_bytes().split(b"\0")
            found |= {one[len(VARIABLE) :].decode() for one in words if one.startswith(VARIABLE)}
    return found
