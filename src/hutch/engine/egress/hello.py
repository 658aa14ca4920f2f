"""Whom a TLS client says it wants to speak to. OpenSSL reads the greeting; nothing of it is parsed here."""

from __future__ import annotations

import ssl

MOST_BYTES = 32 * 1024  # a greeting of today has two


class NoGreeting(ValueError):
    """What came is no greeting of a TLS client."""


class Greeting:
    """Fed with the first bytes of a connection until it knows."""

    def __init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = self._heard
        self._incoming = ssl.MemoryBIO()
        self._server = context.wrap_bio(self._incoming, ssl.MemoryBIO(), server_side=True)
        self.data = b""
        self.known = False
        self.server_name: str | None = None

    def _heard(self, server: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int:
        self.known, self.server_name = True, name
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR  # to go no further: it is the host that shall answer

    def feed(self, data: bytes) -> bool:
        """Whether it is complete. Raises: NoGreeting."""
        self.data += data
        if self.data[:1] != b"\x16" or len(self.data) > MOST_BYTES:
            raise NoGreeting("no TLS was spoken")
        self._incoming.write(data)
        try:
            self._server.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            if not self.known:
                raise NoGreeting("its TLS cannot be read") from None
        return self.known
