"""A form with one file in it, read as it comes: fields are kept, the file's bytes are handed on and never collected."""

from __future__ import annotations

from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from hutch.model.errors import InvalidRequest

MAX_FIELDS = 20
MAX_FIELD_BYTES = 8 * 1024
FILE_PART = "file"


class UploadForm:
    """`begin` reads up to the file; `pieces` reads the rest. Fields that stand after the file come with the latter."""

    def __init__(self, request: Request) -> None:
        """Raises: InvalidRequest when it is no such form."""
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise InvalidRequest("An upload is a form: multipart/form-data, with a part named file.")
        self.fields: dict[str, str] = {}
        self.file_name: str | None = None
        self.ended = False
        self._body = request.stream()
        self._left = _length(request)
        self._trailer = len(boundary) + 8  # \r\n--boundary--\r\n
        self._has_file = False
        self._part: str | None = None  # the field that is read now; None: the file, or between parts
        self._in_file = False
        self._data: list[bytes] = []
        self._field = b""
        self._header = (b"", b"")
        self._disposition = b""
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_begins,
                    "on_header_field": self._header_name,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_ends,
                    "on_headers_finished": self._headers_end,
                    "on_part_data": self._part_data,
                    "on_part_end": self._part_ends,
                    "on_end": self._form_ends,
                },
            )
        except FormParserError as error:
            raise _unreadable(error) from None

    async def begin(self) -> None:
        """Raises: InvalidRequest."""
        while not self._has_file and await self._more():
            pass
        if not self._has_file:
            raise InvalidRequest("The form has no part named file.")

    @property
    def size(self) -> int | None:
        """Of the file, after `begin`: what was announced, as if nothing came after the file."""
        if self._left is None:
            return None
        return max(0, self._left + sum(map(len, self._data)) - (0 if self.ended else self._trailer))

    async def pieces(self) -> AsyncIterator[bytes]:
        """The file, to the form's end: only then is it known to be whole. Raises: InvalidRequest."""
        more = True
        while more:
            pieces, self._data = self._data, []
            for piece in pieces:
                yield piece
            more = await self._more()
        for piece in self._data:
            yield piece

    async def _more(self) -> bool:
        """Take in what came next; False at the end. Raises: InvalidRequest."""
        try:
            async for piece in self._body:
                if piece:
                    self._left = None if self._left is None else self._left - len(piece)
                    self._parser.write(piece)
                    return True
        except FormParserError as error:
            raise _unreadable(error) from None
        except ClientDisconnect:
            raise InvalidRequest("The upload ended before all of it had come.") from None
        if not self.ended:
            raise InvalidRequest("The form does not end as one does: its last boundary is missing.")
        return False

    # -- what the parser tells

    def _part_begins(self) -> None:
        self._disposition, self._header = b"", (b"", b"")

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0] + data[start:end], self._header[1])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0], self._header[1] + data[start:end])

    def _header_ends(self) -> None:
        if self._header[0].lower() == b"content-disposition":
            self._disposition = self._header[1]
        self._header = (b"", b"")

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name == FILE_PART:
            if self._has_file:
                raise InvalidRequest("The form has more than one file.")
            given = options.get(b"filename")
            self.file_name = given.decode("utf-8", "surrogateescape") if given else None
            self._has_file = self._in_file = True
        elif b"filename" in options:
            raise InvalidRequest(f"The file's part is named file, not {name!r:.100}.")
        elif name in self.fields or len(self.fields) >= MAX_FIELDS:
            raise InvalidRequest(f"The form names {name!r:.100} twice, or has more than {MAX_FIELDS} fields.")
        else:
            self._part, self._field = name, b""

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._data.append(data[start:end])
        elif len(self._field) + end - start > MAX_FIELD_BYTES:
            raise InvalidRequest(f"A field of the form has more than {MAX_FIELD_BYTES} bytes.")
        else:
            self._field += data[start:end]

    def _part_ends(self) -> None:
        if self._part is not None:
            self.fields[self._part] = self._field.decode("utf-8", "surrogateescape")
        self._part, self._in_file = None, False

    def _form_ends(self) -> None:
        self.ended = True


def _length(request: Request) -> int | None:
    given = request.headers.get("content-length", "")
    return int(given) if given.isdecimal() and len(given) <= 18 else None


def _unreadable(error: FormParserError) -> InvalidRequest:
    return InvalidRequest(f"The form cannot be read: {str(error) or type(error).__name__:.200}.")
