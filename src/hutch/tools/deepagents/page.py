"""Pages of a text file, as deepagents wants them, made while its bytes pass by: memory stays flat at any size. Pure."""

from __future__ import annotations

import base64
import codecs
import io
from collections.abc import AsyncIterator
from pathlib import PurePosixPath

from deepagents.backends.protocol import FileData, ReadResult
from deepagents.backends.sandbox import MAX_BINARY_BYTES, MAX_OUTPUT_BYTES, TRUNCATION_MSG
from deepagents.backends.utils import EMPTY_CONTENT_WARNING

SNIFFED_BYTES = 8192
COUNTED_BYTES = 1024 * 1024  # lines beyond a full page are counted in files up to this size
PAGE_BYTES = MAX_OUTPUT_BYTES - len(TRUNCATION_MSG.encode())
# What deepagents hands to a model as a picture, a sound, a film or a document.
BINARY_SUFFIXES = frozenset(
    ".png .jpeg .jpg .webp .gif .heic .heif .mp4 .mpeg .mov .avi .flv .mpg .webm .wmv .3gpp .mkv .mp3 .wav .aiff .aac "
    ".ogg .flac .pdf .ppt .pptx".split()
)


async def read_page(pieces: AsyncIterator[bytes], file_path: str, offset: int, limit: int) -> ReadResult:
    """Lines `offset` to `offset + limit` of a text file; all of a small binary one."""
    offset, limit = max(int(offset), 0), max(int(limit), 0)  # models ask for lines before the first
    first = b""
    async for piece in pieces:
        first += piece
        if len(first) >= SNIFFED_BYTES:
            break
    if not first:
        return _text(EMPTY_CONTENT_WARNING)
    if _is_binary(file_path, first[:SNIFFED_BYTES]):
        return await _binary(first, pieces, file_path)
    if limit == 0:
        return _nothing_asked()
    page = Page(offset, limit)
    page.feed(first)
    while not page.enough():
        try:
            page.feed(await anext(pieces))
        except StopAsyncIteration:
            page.end()
    return page.result(file_path)


class Page:
    """Takes the bytes of a text in order, keeps the lines of one page, counts the others."""

    def __init__(self, offset: int, limit: int) -> None:
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._offset = offset
        self._limit = limit
        self._lines = 0  # whole ones that went by
        self._open = False  # there is a line without its end yet
        self._kept: list[str] = []
        self._kept_bytes = 0
        self._returned = 0
        self._cut = False
        self._fed_bytes = 0
        self._ended = False

    def enough(self) -> bool:
        return self._ended or (self._full() and self._fed_bytes > COUNTED_BYTES)

    def feed(self, data: bytes) -> None:
        self._fed_bytes += len(data)
        self._take(self._decoder.decode(data))

    def end(self) -> None:
        self._take(self._decoder.decode(b"", final=True))
        if self._open:
            self._close_line()
        self._ended = True

    def _take(self, text: str) -> None:
        start = self._skip(text) if self._lines < self._offset else 0
        while start < len(text):
            if self._full():
                self._pass(text, start)
                return
            end = text.find("\n", start)
            self._keep(text[start:] if end < 0 else text[start:end])
            self._open = True
            if end < 0:
                return
            self._close_line()
            start = end + 1

    def _skip(self, text: str) -> int:
        """Where the page begins in `text`, if it does."""
        missing = self._offset - self._lines
        if text.count("\n") < missing:
            self._pass(text, 0)
            return len(text)
        start = 0
        for _ in range(missing):
            start = text.find("\n", start) + 1
        self._lines, self._open = self._offset, False
        return start

    def _pass(self, text: str, start: int) -> None:
        self._lines += text.count("\n", start)
        self._open = not text.endswith("\n") if text else self._open

    def _full(self) -> bool:
        return self._cut or self._returned >= self._limit

    def _keep(self, piece: str) -> None:
        if self._returned and not self._open:
            piece = "\n" + piece
        raw = piece.encode()
        if self._kept_bytes + len(raw) > PAGE_BYTES:
            self._cut = True
            piece = raw[: PAGE_BYTES - self._kept_bytes].decode(errors="ignore")
            raw = piece.encode()
        self._kept.append(piece)
        self._kept_bytes += len(raw)

    def _close_line(self) -> None:
        if self._lines >= self._offset and not self._full():
            self._returned += 1
        self._lines += 1
        self._open = False

    def result(self, file_path: str) -> ReadResult:
        if self._returned == 0 and not self._cut:
            return ReadResult(
                error=f"File '{file_path}': Line offset {self._offset} exceeds file length ({self._lines} lines)"
            )
        # A line too long for any page is passed over with its first part, or reading would never get beyond it.
        end = self._offset + max(self._returned, 1)
        total = self._lines if self._ended else None
        return ReadResult(
            file_data=FileData(content="".join(self._kept) + (TRUNCATION_MSG if self._cut else ""), encoding="utf-8"),
            total_lines=total,
            start_line=self._offset + 1,
            end_line=end,
            next_offset=end if total is None or end < total else None,
        )


def _is_binary(file_path: str, start: bytes) -> bool:
    if PurePosixPath(file_path).suffix.lower() in BINARY_SUFFIXES:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # a character cut in two at the end is fine
    except UnicodeDecodeError:
        return True
    return False


async def _binary(first: bytes, pieces: AsyncIterator[bytes], file_path: str) -> ReadResult:
    raw = bytearray(first)
    async for piece in pieces:
        raw += piece
        if len(raw) > MAX_BINARY_BYTES:
            break
    if len(raw) > MAX_BINARY_BYTES:
        return ReadResult(
            error=f"File '{file_path}': Binary file exceeds maximum preview size of {MAX_BINARY_BYTES} bytes"
        )
    return ReadResult(file_data=FileData(content=base64.b64encode(raw).decode("ascii"), encoding="base64"))


def _text(content: str) -> ReadResult:
    return ReadResult(file_data=FileData(content=content, encoding="utf-8"))


def _nothing_asked() -> ReadResult:
    result = _text("")
    if hasattr(result, "no_lines_requested"):  # since deepagents 0.7.6
        result.no_lines_requested = True
    return result
