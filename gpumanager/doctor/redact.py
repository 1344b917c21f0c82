"""Remove from a text what nobody but its owner should read: keys, tokens, passwords. Pure.

Rather too much than too little: whatever stands behind a name like `token` goes, whatever looks
like a key of a known maker, and what is long and looks like chance. What went leaves a mark.
"""

import json
import re
from typing import Final

MARK: Final = "<redacted>"

_NAMES: Final = (
    r"[A-Za-z0-9_.-]*(?:token|secret|passw(?:or)?d|passphrase|pwd|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|client[_-]?key|credential|authorization|auth[_-]?key|license[_-]?key"
    r"|client-certificate-data|cookie|signature)[A-Za-z0-9_.-]*"
)
_RULES: Final = (
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|npm_|nvapi-)[\w-]{10,}"),
    re.compile(r"\bAIza[\w-]{30,}"),
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),
)
"""The last: a bootstrap token of Kubernetes."""

_AFTER_NAME: Final = re.compile(
    rf"""(?ix) (?P<before> ["']? \b {_NAMES} \b ["']? \s* [:=] \s* (?:(?:bearer|basic)\s+)?)
         (?P<value> "(?:[^"\\]|\\.)*" | '[^']*' | [^\s,;&'"{{}}\[\]]+)"""
)
_FLAG: Final = re.compile(rf"(?i)(?P<before>--{_NAMES}\s+)(?P<value>[^\s-][^\s,\]]*)")
_BEARER: Final = re.compile(
    r"(?i)(?P<before>\b(?:bearer|basic)\s+)(?P<value>[A-Za-z0-9+/=._~-]{8,})"
)
_USER: Final = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://)(?P<value>[^/\s@]+)(?=@)")
_NAMED: Final = (_AFTER_NAME, _FLAG, _BEARER, _USER)

_LONG: Final = re.compile(r"[A-Za-z0-9+/_=-]{60,}")
FEW_SLASHES: Final = 16
"""Base64 has a slash in 64 characters, a path has one in a dozen."""


def redact(text: str) -> tuple[str, int]:
    """Return the text without secrets, and how many there were."""
    count = 0

    def gone(found: re.Match[str]) -> str:
        nonlocal count
        parts = found.groupdict()
        value = parts.get("value") or ""
        if value in {MARK, f'"{MARK}"'}:
            return found[0]
        count += 1
        return (parts.get("before") or "") + (f'"{MARK}"' if value.startswith('"') else MARK)

    for rule in (*_RULES, *_NAMED):
        text = rule.sub(gone, text)
    text = _LONG.sub(lambda found: gone(found) if _by_chance(found[0]) else found[0], text)
    return text, count


def _by_chance(text: str) -> bool:
    """Return whether upper, lower and digits are mixed, and it is no path."""
    mixed = all(any(map(test, text)) for test in (str.isupper, str.islower, str.isdigit))
    return mixed and text.count("/") * FEW_SLASHES <= len(text)


def checkpoint_without_answers(text: bytes) -> str:
    """Return the kubelet's checkpoint without what device plugins answered, as environments.

    Raises ValueError for what is no checkpoint.
    """
    found = json.loads(text)
    inner = found.get("Data", found) if isinstance(found, dict) else None
    entries = inner.get("PodDeviceEntries") or [] if isinstance(inner, dict) else None
    if not isinstance(entries, list):
        raise ValueError("no checkpoint of a known shape")  # noqa: TRY004  it is the file's
    for entry in entries:
        if isinstance(entry, dict) and "AllocResp" in entry:
            entry["AllocResp"] = f"<{len(str(entry['AllocResp']))} characters left out>"
    return json.dumps(found, indent=1)
