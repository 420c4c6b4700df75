"""``borgctl archive export`` from a running cell: what happened, where tasks ran, and what they used."""

from pathlib import Path

import pyarrow.parquet as pq

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted, task_of, watched_cell
from tests.ports import free_port

PAIR = "name: pair\ntasks: 2\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"


def test_a_life_is_archived(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    made_with_samples(folder)
    with watched_cell(folder) as made:
        submitted(made, PAIR)
        alive = task_of(made, "ann/pair/0")
        wait_until(lambda: used(made, tmp_path) >= {"ann/pair/0", "ann/pair/1"}, PATIENCE_SECONDS)
        made.ok("task", "kill", "pair/1")
        made.kill("borgmaster")
        made.ok("up")
        archive = tmp_path / "archive"
        said = made.ok("archive", "export", "--to", archive)
        assert said.endswith(f"of positions 1 to {made.items('history', '-n', '1')[0]['position']}\n")
        stays = pq.read_table(archive / "attempts.parquet").to_pylist()
        assert [(stay["task"], stay["attempt"], stay["ending"]) for stay in stays] == [
            ("ann/pair/1", alive.attempt, "kill"),
            ("ann/pair/0", alive.attempt, None),
        ]
        samples = pq.read_table(archive / "usage.parquet").to_pylist()
        assert {row["attempt"] for row in samples} == {alive.attempt}
        assert all(row["ram_bytes"] > 0 and row["machine"] == "m1" for row in samples)
        assert made.borgctl("archive", "export", "--to", archive).code == 1


def made_with_samples(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "cell.toml").write_text(
        f'name = "local"\nlisten = "127.0.0.1:{free_port()}"\nstate = "."\n[usage]\nsample_seconds = 0.2\n'
    )


def used(made: RealCell, folder: Path) -> set[str]:
    """Return of which tasks samples are kept."""
    number = len(list(folder.iterdir()))
    made.ok("archive", "export", "--to", folder / f"look-{number}")
    return set(pq.read_table(folder / f"look-{number}" / "usage.parquet").column("task").to_pylist())
