"""A trace file opened: plain or gzip, UTF-8 or UTF-16, with errors for what is neither."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from gpuwise.sim.traces.errors import TraceError

HEAD_BYTES = 65536
MAX_BYTES = 2**31


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file, unpacked, and the name its user knows it by."""

    path: Path
    name: str
    data: bytes
    throughputs: Path | None = None

    def head(self) -> str:
        """The first 64 kB as text, for telling what the file is; never fails."""
        return _decode(self.data[:HEAD_BYTES], errors="replace")

    def text(self) -> str:
        """The whole file as text, with line ends as ``\\n`` and without a byte order mark."""
        try:
            text = _decode(self.data, errors="strict")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise TraceError(f"{self.name}:{line}: byte 0x{self.data[error.start]:02x} is not UTF-8 text") from None
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise TraceError(f"{self.name}:{line}: binary data, not a text trace")
        return text.replace("\r\n", "\n")


def open_source(path: str | Path, throughputs: str | Path | None = None) -> Source:
    """Read a file into memory, unpacking gzip; an error says why it cannot be read."""
    name, path = str(path), Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise TraceError(f"{name}: no such file{_siblings(path)}") from None
    except IsADirectoryError:
        raise TraceError(f"{name}: a directory; name the trace file in it") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{name}: cannot be read: {error}") from None
    if data[:2] == b"\x1f\x8b":
        data = _gunzip(name, data)
    if len(data) > MAX_BYTES:
        raise TraceError(f"{name}: larger than {MAX_BYTES / 2**30:.0f} GiB; split the trace")
    if not data.strip():
        raise TraceError(f"{name}: the file is empty")
    return Source(path, name, data, None if throughputs is None else Path(throughputs))


def _gunzip(name: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            return packed.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{name}: a damaged gzip file: {error}") from None


def _decode(data: bytes, errors: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors)
    return data.decode("utf-8-sig", errors)


def _siblings(path: Path) -> str:
    """A hint naming the files beside it with the nearest names; nothing when there is none."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = get_close_matches(path.name, names)
    return f"; did you mean {', '.join(near)}?" if near else ""
