"""Calling a master over blocking HTTP, by the name that its cell's authority gives it."""

import http.client
import ssl

from borgish.tls.contexts import master_of


class MasterConnection(http.client.HTTPSConnection):
    """A connection to a master. Where only the authority of a cell is trusted, it has to show the name of
    that cell's masters, whatever its address; elsewhere that of its host."""

    def __init__(self, host: str, port: int | None, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._trust = context

    def connect(self) -> None:
        """Connect. Raises OSError; ssl.SSLError, which is one, for who shows another name."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=master_of(self._trust) or self.host)
