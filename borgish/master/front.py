"""The listener of one borgmaster, the same all its life, and what answers there at the moment."""

from borgish.api import serve
from borgish.api.middleware import AuthMiddleware, Receive, Scope, Send
from borgish.master.settings import Settings, Tls


class Front:
    """Answers with one app, then with another: a standby's and, once it leads, the leader's."""

    def __init__(self, app: AuthMiddleware) -> None:
        self.url = ""  # where it listens
        self._app = self._first = app
        self._serving: serve.Serving | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app of the moment answer (ASGI)."""
        await self._app(scope, receive, send)

    def drop_revoked(self) -> None:
        """End the streams of tokens that are none any more."""
        self._app.drop_revoked()

    def reload(self, tls: Tls) -> None:
        """Show to new connections what is in these files now."""
        if self._serving is not None:
            self._serving.reload(_shown(tls))

    def answer_with(self, app: AuthMiddleware) -> None:
        """Have another app answer what comes from now on."""
        self._app = app

    def answer_as_before(self) -> None:
        """Have the first app answer again: nothing that comes from now on reaches the one of a leader."""
        self._app = self._first

    async def open(self, settings: Settings) -> None:
        """Begin to listen. Raises what ``serve`` does."""
        shown = _shown(settings.tls) if settings.tls else None
        self._serving = await serve.serve(self, settings.host, settings.port, shown)
        self.url = self._serving.url

    async def stop(self) -> None:
        """Listen no more, within a second. Idempotent."""
        if self._serving is not None:
            await self._serving.stop()
            self._serving = None


def _shown(tls: Tls) -> serve.Tls:
    return serve.Tls(tls.certificate, tls.key, tls.ca)
