"""How much each group does: ``FULL`` for figures, ``TINY`` to see that all of it runs."""

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """Counts. ``rounds`` is how often a whole measurement is repeated."""

    rounds: int = 5
    forked: bool = False  # daemons and commands; else they are started as people do
    machines: int = 3  # as ``borgctl up`` makes them
    commands: int = 11  # calls of borgctl
    kills: int = 20
    container_kills: int = 10
    master_kills: int = 100
    failovers: int = 50
    failover_tasks: int = 1_000
    silent_machines: int = 1_000
    process_tasks: int = 200
    containers: int = 100
    single_containers: int = 10
    sim_machines: int = 20
    sim_storm_seconds: float = 120.0
    sim_calm_seconds: float = 300.0
    cell_machines: int = 1_000
    cell_tasks: int = 20_000
    fake_borglets: int = 20
    fleet_machines: int = 10_000
    fleet_tasks: int = 100_000
    fleet_pending: int = 1_000
    kubernetes_machines: int = 5_000
    pack_lists: int = 5  # of tasks that arrive
    pack_seeds: int = 10
    pack_arrivals: int = 100_000  # at most, of each trace
    pack_trials: int = 11
    pack_share: float = 1.0  # of the snapshot that is compacted
    pack_processes: int = 0  # as many as there are cores
    appends: int = 500
    rows: int = 20_000
    checkpoint_machines: int = 10_000
    checkpoint_tasks: int = 200_000
    rolled_back: int = 1_000  # tasks
    updated_machines: int = 100
    updated_tasks: int = 1_000
    updates: int = 100  # at once, in a cell of ``checkpoint_tasks``
    drains: int = 20
    changing_seconds: int = 30
    live_machines: int = 5
    live_tasks: int = 20
    drained_tasks: int = 30  # of one machine
    app_jobs: int = 200  # of one application
    waiting_jobs: int = 10_000
    crons_at_once: int = 100


FULL = Sizes()
TINY = Sizes(
    rounds=1,
    forked=True,
    machines=1,
    commands=1,
    kills=2,
    container_kills=1,
    master_kills=3,
    failovers=1,
    failover_tasks=4,
    silent_machines=2,
    process_tasks=3,
    containers=2,
    single_containers=1,
    sim_machines=2,
    sim_storm_seconds=5.0,
    sim_calm_seconds=60.0,
    cell_machines=4,
    cell_tasks=20,
    fake_borglets=2,
    fleet_machines=40,
    fleet_tasks=200,
    fleet_pending=10,
    kubernetes_machines=50,
    pack_lists=1,
    pack_seeds=1,
    pack_arrivals=30,
    pack_trials=1,
    pack_share=0.01,
    pack_processes=1,
    appends=5,
    rows=20,
    checkpoint_machines=4,
    checkpoint_tasks=50,
    rolled_back=5,
    updated_machines=3,
    updated_tasks=20,
    updates=2,
    drains=1,
    changing_seconds=5,
    live_machines=2,
    live_tasks=2,
    drained_tasks=2,
    app_jobs=3,
    waiting_jobs=4,
    crons_at_once=2,
)
