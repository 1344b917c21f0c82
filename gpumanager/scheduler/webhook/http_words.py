"""What HTTP/1.1 says, taken apart and put together. Pure: bytes in, bytes out.

Of a request only what cannot be misunderstood is taken: one length, and no chunks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
PLAIN: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """One request. fields: of its head, names in small letters."""

    method: str
    path: str
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    last: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """status: one of REASONS."""

    status: int = 200
    body: bytes = b""
    kind: str = PLAIN
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def say(cls, status: int, text: str = "", **fields: str) -> "Answer":
        return cls(status, f"{text or REASONS[status]}\n".encode(), fields=fields)

    def encoded(self, *, last: bool, head_only: bool = False) -> bytes:
        fields = {
            "Content-Type": self.kind,
            "Content-Length": str(len(self.body)),
            "Cache-Control": "no-store",
            "Connection": "close" if last else "keep-alive",
            **self.fields,
        }
        rows = [f"HTTP/1.1 {self.status} {REASONS[self.status]}"]
        rows += [f"{name}: {value}" for name, value in fields.items()]
        head = "\r\n".join([*rows, "", ""]).encode("latin-1")
        return head if head_only else head + self.body


class Refused(Exception):
    """The request is not carried out, and the connection ends with this answer."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.answer = Answer.say(status, text)


def parsed(head: bytes) -> Call:
    """Raises Refused."""
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):  # noqa: PLR2004
        raise Refused(400, "not an HTTP request")
    if words[2] not in {"HTTP/1.0", "HTTP/1.1"}:
        raise Refused(505)
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip() or (key in fields and key in DECISIVE):
            raise Refused(400, "a field of the head is malformed or given twice")
        fields[key] = value.strip()
    wish = fields.get("connection", "").lower()
    last = wish == "close" or (words[2] == "HTTP/1.0" and wish != "keep-alive")
    return Call(words[0], words[1].partition("?")[0], fields, last=last)


DECISIVE: Final = ("content-length", "transfer-encoding", "host")
"""Fields that must not be there twice: who reads the other one sees another request."""
BODILESS: Final = ("GET", "HEAD", "DELETE", "OPTIONS")


def body_length(call: Call) -> int:
    """Of the body; raises Refused."""
    if "transfer-encoding" in call.fields:
        raise Refused(411, "send a Content-Length; chunks are not taken")
    text = call.fields.get("content-length")
    if text is None:
        if call.method not in BODILESS:
            raise Refused(411)
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 20:  # noqa: PLR2004
        raise Refused(400, "Content-Length is no number")
    return int(text)
