"""What can go wrong, as one small tree. The message names the thing and the reason, the hint the way out.

    BorgishError
    +-- Refused                  a command that may not be; nothing was changed
    |   +-- Invalid              the request itself is wrong (carries every mistake found)
    |   +-- NotFound             what it names does not exist
    |   +-- Conflict             what it asks does not go with what is
    |   |   +-- OverQuota        its user would ask for more than they may
    |   +-- PreconditionFailed   what it is about was changed since who asks looked
    |   +-- TooLarge             over a stated limit
    |   +-- Unauthenticated      no token, or a wrong one
    |   +-- Forbidden            the token does not reach that far
    |   +-- Gone                 the position asked for is no longer kept
    |   +-- TooManyRequests      more than one caller may ask for in so short a time
    |   |   +-- Overloaded       more than all callers may
    |   +-- Poison               the master fails at it, and goes on without it
    |   +-- StoreFull            there is no room left to write what follows
    +-- Unreachable              nobody answers, or not in time
    |   +-- NotListening         the host answers, and nothing listens there
    +-- NotLeading               only the leader can answer this
    +-- OutcomeUnknown           the store may or may not have it          exit 70
    +-- CellBroken               what is in memory is not whole            exit 70
    +-- Fenced                   another master leads                      exit 71
    +-- StoreDamaged             what is stored does not verify            exit 72
    +-- StoreOlder               machines have seen more than is stored    exit 73
    +-- UnsafeConfiguration      will not run like this                    exit 74
        +-- InUse                another one has it

``status`` is the HTTP status (RFC 9457 problem details are made from these fields), ``exit_code``
what a command or daemon ends with.
"""

from typing import ClassVar

import msgspec

from borgish.text import begun


class Mistake(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong in what a user wrote. ``line`` and ``column`` count from 1; 0 is unknown."""

    message: str
    line: int = 0
    column: int = 0
    hint: str = ""
    excerpt: str = ""  # the line itself, for the caret
    path: str = ""  # where in the document: resources.cpu
    source: str = ""  # the file that it is in, where several were read


class BorgishError(Exception):
    """Base of all errors that borgish raises on purpose."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = ""  # of its problem details, where the status alone does not tell which it is
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {begun(self.hint)}" if self.hint else self.message


class Refused(BorgishError):
    """A command that may not be; nothing was changed."""

    status = 422


class Invalid(Refused):
    """The request itself is wrong."""

    status = 400
    exit_code = 2

    def __init__(self, message: str, hint: str = "", mistakes: tuple[Mistake, ...] = ()) -> None:
        super().__init__(message, hint)
        self.mistakes = mistakes


class NotFound(Refused):
    """What it names does not exist."""

    status = 404


class Conflict(Refused):
    """What it asks does not go with what is."""

    status = 409


class OverQuota(Conflict):
    """Its user would ask for more than they may at a time."""


class PreconditionFailed(Refused):
    """What it is about was changed since who asks looked."""

    status = 412


class TooLarge(Refused):
    """Over a stated limit."""

    status = 413


class Unauthenticated(Refused):
    """No token, or a wrong one."""

    status = 401
    exit_code = 4


class Forbidden(Refused):
    """The token does not reach that far."""

    status = 403
    exit_code = 4


class Gone(Refused):
    """The position asked for is no longer kept."""

    status = 410


class TooManyRequests(Refused):
    """More than one caller may ask for in so short a time. Nothing was done: the same may be asked again."""

    status = 429

    def __init__(self, message: str, hint: str = "", retry_after_seconds: float = 1.0) -> None:
        super().__init__(message, hint)
        self.retry_after_seconds = retry_after_seconds


class Overloaded(TooManyRequests):
    """More than all callers may ask for in so short a time. Nothing was done."""

    status = 503
    title = "Overloaded"  # or it would be taken for nobody who leads


class Poison(Refused):
    """The master fails at it, in a way that nobody foresaw; nothing was changed, and it goes on."""

    status = 500


class StoreFull(Refused):
    """There is no room left to write what would follow; nothing was decided."""

    status = 507


class NotFollowed(BorgishError):
    """A machine told what changed in its report, and that does not lead to what it says it leads to."""


class Unreachable(BorgishError):
    """Nobody answers, or not in time."""

    status = 503
    exit_code = 4


class NotListening(Unreachable):
    """The host refused the connection: it lives, and nothing listens on the port."""


class NotLeading(BorgishError):
    """What was asked is for the borgmaster that leads, and this one stands by."""

    status = 503


class OutcomeUnknown(BorgishError):
    """The store may or may not have it; the process must end and read again."""

    status = 503
    exit_code = 70


class CellBroken(BorgishError):
    """What is in memory is not whole, and nothing of it is stored; the process must end and read again."""

    status = 503
    exit_code = 70

    def __init__(self, message: str, hint: str = "", digest: str = "") -> None:
        super().__init__(message, hint)
        self.digest = digest  # of the request that broke it, if it was one


class Fenced(BorgishError):
    """Another master leads this cell."""

    status = 503
    exit_code = 71


class LostElection(Fenced):
    """Another master came to lead this cell a moment before this one would have."""


class StoreDamaged(BorgishError):
    """What is stored does not verify."""

    exit_code = 72


class StoreOlder(BorgishError):
    """Machines have seen more than is stored."""

    exit_code = 73


class UnsafeConfiguration(BorgishError):
    """Will not run like this."""

    exit_code = 74


class InUse(UnsafeConfiguration):
    """Somebody else has it, and who came was not told to wait."""
