"""What the store leaves out when somebody asks about a job or a machine has nothing about it."""

import pytest

from borgish.api.views.history import HistoryFilter, history_view
from borgish.master.past.history import words_of
from borgish.sim import workload
from borgish.sim.world import World
from tests.profiles import seeds


@pytest.mark.parametrize("crons", [0.0, 0.8])
def test_each_entry_about_something_names_it(crons: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "CRONS_SHARE", crons)
    about = left_out = 0
    for seed in seeds(quick=1, ci=1, nightly=20):
        world = World(seed, machines=4)
        world.run()
        store = world.master.store.reopen()
        entries, cell = list(store.entries(0)), world.master.store.reopen().load()
        jobs, machines = sorted(cell.jobs.keys() | cell.crons.keys()), sorted(cell.machines)
        for wanted in (*map(HistoryFilter, jobs), *(HistoryFilter(machine=name) for name in machines)):
            found = list(store.entries_naming(words_of(wanted), 1, entries[-1].position + 1))
            matching = [entry for entry in entries if history_view(entry, wanted) is not None]
            assert [entry for entry in reversed(found) if history_view(entry, wanted) is not None] == matching
            about, left_out = about + len(matching), left_out + len(entries) - len(found)
    assert about
    assert left_out
