"""`$(NAME)` in command, args and env, as a kubelet expands it. Pure.

A name that is not defined stays as it is written, and `$$` is one dollar sign: `$$(NAME)` becomes
the letters `$(NAME)`. The rules are those of Kubernetes' third_party/forked/golang/expansion.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name: str | None = found[1]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(value, text)


def expand_environment(
    rows: Iterable[tuple[str, str]], before: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a container: each may refer to those above it. before: of its
    plugins."""
    found: dict[str, str] = {}
    for name, text in rows:
        found[name] = expand(text, {**before, **found})
    return found


def verbatim(text: str) -> str:
    """Return text that expansion leaves as it is: of a field, a ConfigMap or a Secret."""
    return text.replace("$", "$$")
