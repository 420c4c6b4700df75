"""One look at what was opened: where in its history it is, and the copy that went its own way, if any."""

from collections.abc import Iterator

from borgish.api.moments import NOW
from borgish.cell.events import Entry
from borgish.cell.state import Cell
from borgish.errors import Conflict, NotFound
from borgish.sim.faux.copied import Copy, twin
from borgish.sim.faux.moments import find, written
from borgish.sim.faux.opened import Opened
from borgish.store.moment import cell_at, replayed
from borgish.store.replay import replay

PAGE_ENTRIES = 500


class Session:
    """Begins at a moment of what was opened."""

    def __init__(self, there: Opened, at: str = NOW) -> None:
        """Raises what ``find`` and ``cell_at`` raise."""
        self.opened = there
        self.warnings: list[str] = []
        self.began_at = find(there, at)
        self.went_its_own_way: Copy | None = None
        self.cell = self._told(self.began_at)
        self.at = written(there, self.began_at)  # seconds since 1970

    @property
    def here(self) -> Cell:
        """The cell as it is to be looked at: the copy, once something was changed."""
        copy = self.went_its_own_way
        return copy.cell if copy is not None else self.cell

    # What really happened

    def steps(self, count: int) -> list[Entry]:
        """Go through the next entries of the journal and return them. Raises Conflict and NotFound."""
        self._expect_history()
        entries = list(self.opened.source.entries(self.cell.position, count))
        if not entries:
            raise self._at_the_end()
        replay(self.cell, entries)
        self.at = entries[-1].at
        return entries

    def following(self) -> Iterator[Entry]:
        """Yield what really happened next, without going there. Raises Conflict and NotFound."""
        self._expect_history()
        after, any_there = self.cell.position, False
        while page := list(self.opened.source.entries(after, PAGE_ENTRIES)):
            any_there = True
            yield from page
            after = page[-1].position
        if not any_there:
            raise self._at_the_end()

    def go_on_to(self, entry: Entry) -> None:
        """Go to an entry that is still to come."""
        replayed(self.opened.source, self.cell, entry.position)
        self.at = entry.at

    def go_to(self, moment: str) -> None:
        """Go to a moment, and let go of the copy."""
        position = find(self.opened, moment)
        self.cell = self._told(position)
        self.at = written(self.opened, position)
        self.went_its_own_way = None

    def cell_of(self, moment: str) -> Cell:
        """Return the cell at a moment, to be looked at; "here" is where this session is."""
        return self.here if moment == "here" else self._told(find(self.opened, moment))

    # What would be if

    def copy(self) -> Copy:
        """Return the copy that is worked on, made when it is first asked for."""
        if self.went_its_own_way is None:
            self.went_its_own_way = self.trial()
        return self.went_its_own_way

    def trial(self) -> Copy:
        """Return a copy of what is here, for one question."""
        return Copy(twin(self.here), self.now)

    def back(self) -> None:
        """Let go of the copy. Raises Conflict where there is none."""
        if self.went_its_own_way is None:
            raise Conflict(
                "nothing was changed here: this is what really happened", "There is nothing to undo"
            )
        self.went_its_own_way = None

    @property
    def now(self) -> float:
        """What time it is here, in seconds since 1970."""
        copy = self.went_its_own_way
        return copy.now().wall if copy is not None else self.at

    def _told(self, position: int) -> Cell:
        found = cell_at(self.opened.source, self.opened.cell, position)
        self.warnings += found.warnings
        return found.cell

    def _expect_history(self) -> None:
        if self.went_its_own_way is not None:
            raise Conflict(
                f"this copy went its own way at position {self.cell.position}, and has no journal after that",
                "`back` returns to what really happened",
            )

    def _at_the_end(self) -> NotFound:
        here = self.opened
        hint = f"It was opened at {self.began_at}; `at POSITION` goes to an earlier one"
        if here.kind == "checkpoint" and here.first == here.head:
            hint = "The file has no journal: export it --with-journal, or open the cell's database"
        return NotFound(f"nothing more is in {here.what} after position {self.cell.position}", hint)
