"""Finds one short field of a multipart form while the form passes by, whatever else it holds."""

from __future__ import annotations

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

LONGEST_VALUE = 4096


class FieldFinder:
    def __init__(self, content_type: str, wanted: str) -> None:
        self.value: str | None = None
        self._wanted = wanted.encode()
        self._name = b""
        self._header = b""
        self._header_value = b""
        self._data = bytearray()
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        self._parser: MultipartParser | None = None
        if kind == b"multipart/form-data" and boundary:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._field,
                    "on_header_value": self._field_value,
                    "on_header_end": self._header_end,
                    "on_part_data": self._part_data,
                    "on_part_end": self._end,
                },
            )

    def feed(self, data: bytes) -> None:
        """What is no form has no field; whoever reads all of it will say so."""
        if self._parser is not None:
            try:
                self._parser.write(data)
            except FormParserError:
                self._parser = None

    def _begin(self) -> None:
        self._name = b""
        self._data.clear()

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _field_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._name = parse_options_header(self._header_value)[1].get(b"name", b"")
        self._header = self._header_value = b""

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == self._wanted:
            self._data += data[start:end][: LONGEST_VALUE - len(self._data)]

    def _end(self) -> None:
        if self._name == self._wanted and self.value is None:
            self.value = self._data.decode("utf-8", "replace")
