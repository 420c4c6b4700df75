"""Containers in a real cell: killed they come back, and a borglet killed and started again adopts them."""

from collections.abc import Iterator

import docker
import docker.errors
import pytest
from docker.models.containers import Container

from borgish.borglet.runtimes.cgroups import group_name
from tests.cells import RealCell, wait_until
from tests.e2e.watched import (
    JOBS,
    PATIENCE_SECONDS,
    Life,
    becomes,
    lives,
    said_at_last,
    task_of,
    watched_cell,
)

pytestmark = pytest.mark.docker

TASKS = ("ann/container/0", "ann/container/1")
ENDED = (
    "name: ended\nimage: {image}\nrestart: {{policy: never}}\n"
    "run: [sh, -c, 'echo bye; while ! [ -e /tmp/go ]; do sleep 0.05; done; exit 7']\n"
)
SEVERAL = (
    "name: several\nimage: {image}\nrun: [sleep, '1000']\nresources: {{cpu: 10m, ram: 16MiB}}\n"
    "stop: {{grace: 1s}}\ngroup: {{side: {{run: [sleep, '1000']}}}}\n"
)


@pytest.fixture(scope="module")
def ship(
    tmp_path_factory: pytest.TempPathFactory, docker_engine: docker.DockerClient, busybox_image: str
) -> Iterator[RealCell]:
    """A cell in which the example job with containers runs."""
    with watched_cell(tmp_path_factory.mktemp("docker") / "cell") as made:
        wait_until(lambda: "docker" in made.items("machine", "show", "m1")["runtimes"], PATIENCE_SECONDS)
        text = (JOBS / "container.yaml").read_text().replace("busybox:1", busybox_image)
        assert busybox_image in text
        made.ok("job", "submit", "-", "--settle", 0, "--user", "ann", stdin=text)
        yield made
    for job in ("ann/container", "ann/ended", "ann/several"):  # all purged, also what kept output
        assert containers_of(made, docker_engine, job) == {}


def its_own(made: RealCell) -> str:
    """Return the label of this cell's containers: other test processes may have such jobs on the engine."""
    return f"borgish.owner={group_name(made.folder / 'machines/m1/state').removeprefix('borgish-')}"


def containers_of(made: RealCell, engine: docker.DockerClient, job: str) -> dict[str, str]:
    """Return the containers of a job's tasks, by id."""
    found = {}
    for container in engine.containers.list(all=True, filters={"label": its_own(made)}, ignore_removed=True):
        task = container.labels.get("borgish.task", "")
        if task.startswith(f"{job}/"):
            found[str(container.id)] = task
    return found


def running_since(engine: docker.DockerClient, ids: dict[str, str]) -> dict[str, str]:
    """Return when each container was started, by id."""
    return {one: engine.containers.get(one).attrs["State"]["StartedAt"] for one in ids}


def test_a_killed_container_comes_back(ship: RealCell, docker_engine: docker.DockerClient) -> None:
    before = lives(ship, "ann/container")
    victim = next(
        i for i, task in containers_of(ship, docker_engine, "ann/container").items() if task == TASKS[0]
    )
    docker_engine.containers.get(victim).kill()
    becomes(lambda: restarts(ship), {TASKS[0]: before[TASKS[0]].restarts + 1, TASKS[1]: 0})
    after = lives(ship, "ann/container")
    assert after[TASKS[0]].attempt == before[TASKS[0]].attempt
    assert after[TASKS[0]].pid != before[TASKS[0]].pid
    assert after[TASKS[1]] == before[TASKS[1]]
    assert task_of(ship, TASKS[0]).reason == ""


def restarts(made: RealCell) -> dict[str, int]:
    """Return how often each of the running containers was started anew."""
    return {name: life.restarts for name, life in lives(made, "ann/container").items()}


@pytest.mark.parametrize("dead", [("m1",), ("borgmaster", "m1")], ids=["borglet", "both"])
def test_containers_do_not_notice_that_daemons_are_killed(
    ship: RealCell, docker_engine: docker.DockerClient, dead: tuple[str, ...]
) -> None:
    before: dict[str, Life] = lives(ship, "ann/container")
    containers = running_since(docker_engine, containers_of(ship, docker_engine, "ann/container"))
    for name in dead:
        ship.kill(name)
    ship.ok("up")
    ship.ok("job", "wait", "container", "--settle", 0)
    becomes(lambda: lives(ship, "ann/container"), before)
    assert running_since(docker_engine, containers_of(ship, docker_engine, "ann/container")) == containers


def test_what_a_container_writes_can_be_read(ship: RealCell) -> None:
    wait_until(
        lambda: "hello from ann/container/1\n" in ship.ok("task", "logs", "container/1"), PATIENCE_SECONDS
    )


def test_a_command_beside_a_container_runs_in_it(ship: RealCell) -> None:
    said = ship.borgctl("task", "exec", "container/1", "--", "sh", "-c", "echo $BORGISH_TASK; ls /; exit 9")
    assert said.code == 9, said
    assert said.out.startswith("ann/container/1\n")
    assert "work" not in said.out  # its own root, not the machine's


def test_an_exit_code_is_not_lost_while_the_borglet_is_dead(
    ship: RealCell, docker_engine: docker.DockerClient, busybox_image: str
) -> None:
    ship.ok("job", "submit", "-", "--settle", 0, "--user", "ann", stdin=ENDED.format(image=busybox_image))
    ship.kill("m1")
    mine = containers_of(ship, docker_engine, "ann/ended")
    assert len(mine) == 1
    opened = docker_engine.containers.get(next(iter(mine))).exec_run(
        ["sh", "-c", "mkdir -p /tmp && touch /tmp/go"]
    )
    assert opened.exit_code == 0, opened
    wait_until(lambda: docker_engine.containers.get(next(iter(mine))).status == "exited", PATIENCE_SECONDS)
    ship.ok("up")
    ship.borgctl("job", "wait", "ended", "--for", "dead")
    task = task_of(ship, "ann/ended/0")
    assert (task.state, task.exit_code, task.reason) == ("dead", 7, "exit code 7")
    wait_until(lambda: let_go(docker_engine, mine), PATIENCE_SECONDS)
    assert ship.ok("task", "logs", "ended/0") == "bye\n"


def let_go(engine: docker.DockerClient, ids: dict[str, str]) -> bool:
    """Whether the borglet is done with these containers, and keeps them for their output."""
    return all(str(engine.containers.get(one).name).startswith("borgish.gone.") for one in ids)


def test_a_missing_image_is_said(ship: RealCell) -> None:
    text = "name: missing\nimage: borgish.invalid/no-such-image:1\nrun: [sh]\n"
    said = ship.borgctl("job", "submit", "-", "--user", "ann", "--timeout", "8s", stdin=text)
    said = said_at_last(ship, "ann/missing", said, "borgish.invalid/no-such-image:1", "8s")
    assert said.code == 1, said
    assert "borgish.invalid/no-such-image:1" in said.err
    assert "borgish.invalid/no-such-image:1" in ship.ok("why", "missing/0")
    ship.borgctl("job", "kill", "--yes", "missing")


def test_programs_of_a_task_keep_one_network_when_the_main_one_is_killed(
    ship: RealCell, docker_engine: docker.DockerClient, busybox_image: str
) -> None:
    text = SEVERAL.format(image=busybox_image)
    ship.ok("job", "submit", "-", "--settle", 0, "--user", "ann", stdin=text)
    main, beside = wait_until(lambda: both(ship, docker_engine), PATIENCE_SECONDS)
    assert beside.attrs["HostConfig"]["NetworkMode"] == f"container:{main.id}"
    limits = {one.attrs["HostConfig"]["Memory"] for one in (main, beside)}
    assert limits == {16 * 1024**2}
    main.kill()
    gone = {main.id, beside.id}
    anew = wait_until(
        lambda: (found := both(ship, docker_engine)) and not gone & {one.id for one in found} and found,
        PATIENCE_SECONDS,
    )
    assert anew[1].attrs["HostConfig"]["NetworkMode"] == f"container:{anew[0].id}"
    task = wait_until(lambda: (t := task_of(ship, "ann/several/0")).programs and t, PATIENCE_SECONDS)
    assert (task.restarts, task.attempt > 0) == (1, True)
    ship.ok("job", "kill", "--yes", "several")
    wait_until(lambda: not both(ship, docker_engine), PATIENCE_SECONDS)


def both(made: RealCell, engine: docker.DockerClient) -> tuple[Container, ...]:
    """Return the containers that run of a task with two programs, the main one first; () before both do."""
    filters = {"label": ["borgish.task=ann/several/0", its_own(made)], "status": "running"}
    found = engine.containers.list(filters=filters, ignore_removed=True)
    main_first = sorted(found, key=lambda one: str(one.labels["borgish.program"]))
    return tuple(main_first) if len(main_first) == 2 else ()
