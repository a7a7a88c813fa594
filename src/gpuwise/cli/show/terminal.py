"""What programs print, made harmless for a terminal."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable

_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""All controls but backspace, tab, line feed and carriage return."""
_SEQUENCE = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]{0,256}m)"
    r"|(?P<string>\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])"  # DCS, SOS, OSC, PM, APC: the start of a text for the terminal
    r"|(?P<cut>(?:(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}|\x1b[ -/]{0,16})\Z)"
    r"|(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}[@-~]"
    r"|\x1b[ -/]{0,16}[0-~]"
    r"|.",
    re.DOTALL,
)
"""Control functions as in ECMA-48; what is longer is no function that a program means, and is shown as text."""
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b\x9c\n]")


class TerminalFilter:
    """Removes control sequences from a stream, but for colours; one that is cut off is continued in the next piece.

    A title, a clipboard or an answer that a terminal types back is not for the output of a job to set. A text for the
    terminal that has no end is removed up to the end of its line, so that it hides nothing else.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._in_string = False

    def clean(self, data: bytes) -> bytes:
        """The next piece, without what is not for the terminal."""
        text, self._rest = self._rest + self._decoder.decode(data), ""
        kept: list[str] = []
        at = 0
        while at < len(text):
            at = self._skip_string(text, at) if self._in_string else self._copy(text, at, kept)
        return "".join(kept).encode()

    def _copy(self, text: str, at: int, kept: list[str]) -> int:
        """Keeps what is printable and the colour after it, and skips any other sequence; the place after it."""
        control = _CONTROL.search(text, at)
        if control is None:
            kept.append(text[at:])
            return len(text)
        kept.append(text[at : control.start()])
        found = _SEQUENCE.match(text, control.start())
        assert found is not None
        if found["colour"]:
            kept.append(found["colour"])
        self._rest = found["cut"] or ""
        self._in_string = found["string"] is not None
        return found.end()

    def _skip_string(self, text: str, at: int) -> int:
        """The place after the end of a text for the terminal."""
        end = _STRING_END.search(text, at)
        if end is None:
            return len(text)
        if end[0] == "\x1b" and end.end() == len(text):
            self._rest = "\x1b"
            return len(text)
        self._in_string = False
        if end[0] == "\x1b":
            return end.end() + 1 if text[end.end()] == "\\" else end.start()
        return end.start() if end[0] == "\n" else end.end()


def output_writer() -> Callable[[bytes], None]:
    """Writes bytes to the output: to a file or pipe as they are, to a terminal without control sequences."""
    clean: Callable[[bytes], bytes] = TerminalFilter().clean if sys.stdout.isatty() else bytes

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(clean(data))
        sys.stdout.buffer.flush()

    return write
