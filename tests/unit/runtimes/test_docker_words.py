"""What an attempt is as a container, and what the engine's words mean."""

import msgspec
import pytest
from docker.errors import APIError
from requests import Response

from borgish.borglet.attempts.messages import exit_text
from borgish.borglet.runtimes.docker import container as containers
from borgish.borglet.runtimes.docker.container import Owner, Place
from borgish.borglet.runtimes.docker.start import why_not
from borgish.resources import Resources
from borgish.spec.job import Restart, Stop
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, Exit

SPEC = AttemptSpec(
    task="ann/web/3",
    attempt=1207,
    run=("serve",),
    env={"A": "b"},
    runtime=Runtime.DOCKER,
    resources=Resources(cpu_millis=500, ram_bytes=64 * 1024**2),
    restart=Restart(),
    stop=Stop(),
    image="tiny:1",
    ports={"http": 20001},
)
BRIDGE = Place("borgish-c", ("127.0.0.1", "172.20.0.1"))


def refusal(status: int, said: str) -> APIError:
    response = Response()
    response.status_code = status
    return APIError(said, response=response, explanation=said)


def test_the_name_says_what_it_is() -> None:
    assert Owner("local", "m1", "ab12").container_name(SPEC, 2) == "borgish-local-ab12-ann-web-3-1207-2"
    assert Owner("local", "m1").container_name(SPEC, 2) == "borgish-local-ann-web-3-1207-2"


def test_labels_come_back_as_what_they_were() -> None:
    config = containers.container_config(SPEC, 2, Owner("local", "m1"), BRIDGE)
    assert containers.identity(config["labels"]) == ("ann/web/3@1207", 2)


@pytest.mark.parametrize("labels", [{}, {"borgish.task": "ann/web/3"}, {"borgish.run": "one"}])
def test_labels_of_others_are_nobody(labels: dict[str, str]) -> None:
    assert containers.identity(labels) is None


def test_limits_and_rights() -> None:
    host = containers.container_config(SPEC, 1, Owner("local", "m1"), BRIDGE)["host_config"]
    assert host["Memory"] == host["MemorySwap"] == 64 * 1024**2
    assert (host["CpuShares"], host["PidsLimit"], host["Init"]) == (512, 1024, True)
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert host["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "3"}


def test_ports_are_published_where_there_is_a_bridge() -> None:
    bridged = containers.container_config(SPEC, 1, Owner("c", "m"), BRIDGE)["host_config"]
    assert bridged["PortBindings"] == {
        "20001/tcp": [
            {"HostIp": "127.0.0.1", "HostPort": "20001"},
            {"HostIp": "172.20.0.1", "HostPort": "20001"},
        ]
    }
    assert bridged["NetworkMode"] == "borgish-c"
    plain = containers.container_config(SPEC, 1, Owner("c", "m"), Place("", ("127.0.0.1",)))["host_config"]
    assert "PortBindings" not in plain
    assert plain["NetworkMode"] == "host"


@pytest.mark.parametrize(
    ("code", "oom", "wanted"),
    [
        (0, False, Exit(code=0, at=5.0)),
        (127, False, Exit(code=127, at=5.0)),
        (128, False, Exit(code=128, at=5.0)),
        (143, False, Exit(signal=15, at=5.0)),
        (143, True, Exit(signal=15, at=5.0)),
        (137, True, Exit(signal=9, oom=True, at=5.0)),
        (255, False, Exit(code=255, at=5.0)),
    ],
)
def test_codes_above_128_are_signals(code: int, oom: bool, wanted: Exit) -> None:
    assert containers.ending(code, 5.0, oom=oom) == wanted


@pytest.mark.parametrize(
    ("written", "wanted"),
    [("1970-01-01T00:00:02.500000001Z", 2.5), ("1970-01-01T01:00:03Z", 3603), ("0001-01-01T00:00:00Z", 0)],
)
def test_the_engines_times(written: str, wanted: float) -> None:
    assert containers.seconds(written) == wanted


@pytest.mark.parametrize(
    "said",
    [
        "driver failed (4f): Bind for 127.0.0.1:20001 failed: port is already allocated",
        "Error starting userland proxy: listen tcp4 127.0.0.1:20001: bind: address already in use",
    ],
)
def test_a_port_that_is_taken(said: str) -> None:
    failed = containers.not_started(refusal(500, said))
    assert (failed.port, failed.permanent) == (20001, False)


def test_what_trying_again_can_help() -> None:
    assert containers.not_started(refusal(400, 'exec: "x": executable file not found in $PATH')).permanent
    assert not containers.not_started(refusal(500, "no space left on device")).permanent
    assert not containers.not_created(refusal(404, "No such image: tiny:1"), SPEC).permanent
    assert containers.not_created(refusal(400, "No command specified"), SPEC).permanent


def test_the_list_alone_tells_enough() -> None:
    row = {"Status": "Exited (5) 2 minutes ago", "Created": 12}
    assert containers.listed_state("a/b/0@1", 1, row).exit == Exit(code=5, at=12.0)
    assert containers.listed_state("a/b/0@1", 1, {"Status": "Up 2 minutes", "Created": 12}).exit is None


@pytest.mark.parametrize(
    ("exit_", "spec", "said"),
    [
        (
            Exit(signal=9),
            SPEC,
            "killed by signal 9 by somebody else than borgish; maybe its memory limit of 64MiB",
        ),
        (
            Exit(signal=9),
            msgspec.structs.replace(SPEC, resources=Resources()),
            "killed by signal 9 by somebody else than borgish",
        ),
        (Exit(signal=15), SPEC, "ended by signal TERM"),
        (Exit(signal=9, oom=True), SPEC, "out of memory: it reached its limit of 64MiB; raise resources.ram"),
        (Exit(signal=9, reason="unhealthy"), SPEC, "unhealthy (ended by signal KILL)"),
        (Exit(signal=9), msgspec.structs.replace(SPEC, runtime=Runtime.PROCESS), "ended by signal KILL"),
    ],
)
def test_a_kill_that_nobody_asked_for_may_be_the_memory_limit(
    exit_: Exit, spec: AttemptSpec, said: str
) -> None:
    assert exit_text(exit_, spec) == said


def test_the_last_words_of_the_init() -> None:
    assert why_not(b"[FATAL tini (7)] exec serv failed: No such file or directory\n") == (
        "serv: No such file or directory"
    )
    assert why_not(b"bye\n") == ""
