"""borgish: a cluster orchestrator in the mould of Google's Borg, as one process.

``from borgish import Client`` is for scripts, ``AsyncClient`` the same for asyncio. Both are imported when
they are asked for: borgctl and the daemons start without them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from borgish.scripting import Client
    from borgish.scripting.asynchronous import AsyncClient

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from borgish.scripting import Client

        return Client
    if name == "AsyncClient":
        from borgish.scripting.asynchronous import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
