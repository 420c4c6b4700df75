"""How connections of a cell are made and judged: TLS 1.3 only, by the cell's own authority only.

Each of these trusts the authorities in one file, and nobody else: none of the system. Names are compared by
OpenSSL itself. Nothing is resumed: a certificate is judged at each connection.
"""

import ssl
from contextlib import suppress

from borgish.errors import UnsafeConfiguration
from borgish.tls.names import cell_of, master_name

_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which ``ssl`` has no name for."""


def master_listener(certificate: str, authority: str) -> ssl.SSLContext:
    """Return how a master is called: people come with tokens, machines with certificates. The first file has
    its certificate and key. Raises UnsafeConfiguration."""
    return _listener(certificate, authority, ssl.CERT_OPTIONAL)


def borglet_listener(certificate: str, authority: str) -> ssl.SSLContext:
    """Return how a borglet is called: by who has a certificate of the cell, of whom it admits the master.
    Raises UnsafeConfiguration."""
    return _listener(certificate, authority, ssl.CERT_REQUIRED)


def caller(authority: str, certificate: str = "") -> ssl.SSLContext:
    """Return how one calls another, whose name has to be given as ``server_hostname``; ``certificate`` is the
    file of certificate and key that is shown, if any. Raises UnsafeConfiguration."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    _load(context, certificate, authority)
    return context


def expect_believed(certificate: str, authority: str, name: str) -> None:
    """Have a caller who trusts the second file judge what the first shows, as it would be judged on a
    connection, but for the time: this reads no clock. Raises UnsafeConfiguration."""
    calling, listening = caller(authority), borglet_listener(certificate, authority)
    calling.verify_flags |= _NO_CHECK_TIME
    to_caller, to_listener = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = calling.wrap_bio(to_caller, to_listener, server_hostname=name)
    other = listening.wrap_bio(to_listener, to_caller, server_side=True)
    try:
        for end in (one, other, one):  # it calls, is answered, and judges that
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason
        raise UnsafeConfiguration(
            f"{certificate} would not be taken for {name}: {reason}",
            "Put back what the cell's authority signed",
        ) from None


class Replaceable:
    """A listener's context that another may replace while it listens: each handshake goes by the newest. An
    authority that is trusted no more cannot be taken out of a context that there is."""

    def __init__(self, context: ssl.SSLContext, name: str = "", others: ssl.SSLContext | None = None) -> None:
        """``others`` is for callers that do not ask for ``name``: those who know this host by an operator's
        authority, while a cell is carried over to its own."""
        self.context = self._newest = context  # what is listened with
        self._name, self._others = name, others
        context.sni_callback = self._follow

    def replace(self, context: ssl.SSLContext, others: ssl.SSLContext | None = None) -> None:
        """Go by another one from the next handshake on."""
        self._newest, self._others = context, others

    def _follow(self, connection: ssl.SSLObject | ssl.SSLSocket, asked: str | None, *_: object) -> None:
        is_other = self._others is not None and asked != self._name
        connection.context = self._others if is_other and self._others else self._newest


def operators_caller(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    """Return how one calls another whom an operator's authority knows by its host. Raises OSError."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(ca)
    return context


def operators_listener(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    """Return how one is called by the files of an operator. Raises OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(certificate, key)
    return context


def stranger() -> ssl.SSLContext:
    """Return how to call one of whom nothing is known yet: to be told the authority, and nothing else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def master_of(context: ssl.SSLContext) -> str:
    """Return the name that a master must show to a caller; "" where it trusts others than one cell's own
    authority: there a master is known by its host."""
    cells = {cell_of(authority["subject"]) for authority in context.get_ca_certs()}
    return master_name(cells.pop()) if len(cells) == 1 and "" not in cells else ""


def _listener(certificate: str, authority: str, wanted: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.num_tickets = 0
    _load(context, certificate, authority)
    context.verify_mode = wanted
    return context


def _load(context: ssl.SSLContext, certificate: str, authority: str) -> None:
    name = certificate
    try:
        if certificate:
            context.load_cert_chain(certificate, password="")
        name = authority
        context.load_verify_locations(authority)
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or "it is damaged"
        raise UnsafeConfiguration(
            f"{name} cannot be used: {str(reason).lower().replace('_', ' ')}",
            "It holds what the cell's authority signed, in PEM",
        ) from None
