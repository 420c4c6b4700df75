"""The programs of an attempt beside its main one (sidecars), and how they follow it.

The main program decides. The others start when it runs and are started again, with back-off, as long as
it does. Whenever it has ended they are stopped, with *each* of its runs and not only with the attempt: a
container's network goes with the container. It is not started again before the last of them is gone, so
whatever they share, ports above all, is free by then; the price is that its restart takes as long as the
slowest of them takes to end. The attempt has ended when all of them have.

Each is an ``Attempt`` of its own, under a key of its own (``user/job/3@1207:proxy``), so start, back-off,
stop, ledger and adoption are those of any task. The master knows one attempt; what is reported to it is
made here.
"""

from collections.abc import Iterable, Iterator

import msgspec

from borgish.borglet.attempts import messages
from borgish.borglet.attempts.attempt import Attempt
from borgish.borglet.attempts.failures import Backoff
from borgish.borglet.attempts.transitions import LIVE, Purpose, Stage
from borgish.clock import Now
from borgish.wire.link import AttemptReport, AttemptSpec, ProgramReport, main_key

MAIN_ENDED = "its main program ended"
WAITS_FOR_MAIN = "starts with the main program"
_PRESENT = LIVE | {Stage.STARTING}


class Groups:
    """Which attempts belong together, over the attempts of one core (``attempts``, by key)."""

    def __init__(self, attempts: dict[str, Attempt]) -> None:
        self._attempts = attempts
        self._members: dict[str, list[str]] = {}  # by the key of the main program; only where there are any

    def add_members(self, spec: AttemptSpec, now: Now) -> None:
        """See that all programs of an attempt are there, and know what they are to run."""
        for program in spec.programs:
            beside = spec.beside(program)
            if (known := self._attempts.get(beside.key)) is not None:
                known.learn(beside, now)
            else:
                self._attempts[beside.key] = Attempt(
                    task=spec.task,
                    attempt=spec.attempt,
                    program=program.name,
                    spec=beside,
                    due=now,
                    waits_for_group=True,
                )
            self.register(beside.key)

    def register(self, key: str) -> None:
        """Register the attempt under this key; its main program gets a place if it has none."""
        main, attempt = main_key(key), self._attempts[key]
        if main == key:
            return
        members = self._members.setdefault(main, [])
        if key not in members:
            members.append(key)
        if main not in self._attempts:
            place = Attempt(task=attempt.task, attempt=attempt.attempt, spec=None, reason=messages.UNKNOWN)
            self._attempts[main] = place

    def remove(self, main: str) -> list[Attempt]:
        """Let go of all programs of an attempt, and return them."""
        return [self._attempts.pop(key) for key in (main, *self._members.pop(main, ()))]

    def with_members(self, keys: Iterable[str]) -> dict[str, None]:
        """Return these keys with those that belong to them, each main program before the others."""
        if not self._members:
            return dict.fromkeys(keys)
        found: dict[str, None] = {}
        for key in keys:
            main = main_key(key)
            if main in self._members:
                found.update(dict.fromkeys([main, *self._members[main]]))
            else:
                found[key] = None
        return found

    def follow(self, key: str, now: Now) -> None:
        """Let the programs of one attempt be where its main one is, before ``key`` is advanced."""
        if not self._members:
            return
        main_of = main_key(key)
        main = self._attempts.get(main_of)
        if main is None or main_of not in self._members:
            return
        members = list(self._of(main_of))
        for member in members:
            _follow(main, member, now)
        main.waits_for_group = any(member.stage in _PRESENT for member in members)

    def report(self, main: str) -> AttemptReport:
        """Return what is reported to the master of an attempt."""
        report = self._attempts[main].report()
        if main not in self._members:
            return report
        members = list(self._of(main))
        member_reasons = (
            f"{m.program}: {m.reason}" for m in members if m.reason and not (m.waits_for_group or m.ended)
        )
        return msgspec.structs.replace(
            report,
            ended=report.ended if all(member.ended for member in members) else None,
            reason=report.reason or next(member_reasons, ""),
            unkillable=report.unkillable or any(member.unkillable for member in members),
            programs=tuple(_report(member) for member in members),
        )

    def _of(self, main: str) -> Iterator[Attempt]:
        return (self._attempts[key] for key in self._members[main])


def _follow(main: Attempt, member: Attempt, now: Now) -> None:
    if main.ended:
        member.stop(MAIN_ENDED, Purpose.KILL, now, end_by=main.end_by)
    elif main.spec is None:
        return  # nobody knows yet what is to become of it
    elif main.stage is Stage.UP:
        _release(member, now)
    elif main.stage is Stage.STOPPING:
        _hold(member, "")  # what runs goes on while the main program ends, and nothing new begins
    else:
        if member.stage in (Stage.STARTING, Stage.UP):
            member.stop(MAIN_ENDED, Purpose.RESTART, now)
        _hold(member, WAITS_FOR_MAIN)


def _hold(member: Attempt, reason: str) -> None:
    member.waits_for_group = True
    if member.stage is Stage.WAITING:
        member.backoff, member.reason = Backoff(), reason


def _release(member: Attempt, now: Now) -> None:
    if member.waits_for_group:
        member.waits_for_group = False
        if member.stage is Stage.WAITING:
            member.due, member.reason = now, ""


def _report(member: Attempt) -> ProgramReport:
    return ProgramReport(
        name=member.program,
        phase=member.phase(),
        pid=member.pid if member.stage in LIVE else 0,
        restarts=max(0, member.run - 1),
        reason=member.reason or member.note,
        early_ends=member.backoff.ends,
        held_back=member.held_back,
    )
