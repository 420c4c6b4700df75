"""Job files: what they mean, and what is said of those that are wrong."""

import json

import pytest

from borgish.bands import Bands
from borgish.errors import Invalid, Mistake
from borgish.resources import Resources
from borgish.spec.file.read import read_job
from borgish.spec.job import Constraint, Health, JobSpec, Override, Restart, Stop
from borgish.vocabulary import Appclass, Band, RestartPolicy, Runtime

BANDS = Bands(monitoring=360, production=120, batch=110, highest=450, names={"prod": Band.PRODUCTION})
SMALL = "name: web\nrun: [serve]\n"


def wrong(text: str | bytes, default_user: str = "ann") -> tuple[Mistake, ...]:
    with pytest.raises(Invalid) as caught:
        read_job(text, default_user)
    return caught.value.mistakes


def test_a_small_job() -> None:
    assert read_job(SMALL, "ann") == JobSpec(name="web", user="ann", tasks=1, run=("serve",))


EVERYTHING = """
name: web
user: bob
tasks: 3
run: [serve, --port, "{{port.http}}", 8080, no, 1e3, ""]
image: serve:1
runtime: docker
priority: production
appclass: batch
resources: {cpu: 0.5, ram: 256MiB, disk: 1GiB, gpu: 2}
ports: [http, admin]
env: {LOG: debug, N: 012, YES: yes, EMPTY: ""}
workdir: /srv
restart: {policy: on_failure, attempts: 3, within: 5m, backoff: 500ms}
stop: {signal: SIGINT, grace: 30s, deregister: 2500ms}
health: {tcp: admin, interval: 1s, timeout: 250ms, failures: 5, grace: 1m}
labels: {team: search}
annotations: {note: "two\\nlines"}
constraints: [arch == amd64, "rack in (a, b)"]
overrides:
  2: {run: [other], env: {LOG: info}, resources: {ram: 1GiB}}
  0: {}
max_runtime: 1h
"""


def test_every_field() -> None:
    resources = Resources(500, 256 * 1024**2, 1024**3, {"gpu": 2})
    assert read_job(EVERYTHING, "ann") == JobSpec(
        name="web",
        user="bob",
        tasks=3,
        run=("serve", "--port", "{{port.http}}", "8080", "no", "1e3", ""),
        image="serve:1",
        runtime=Runtime.DOCKER,
        priority=200,
        appclass=Appclass.BATCH,
        resources=resources,
        ports=("http", "admin"),
        env={"LOG": "debug", "N": "012", "YES": "yes", "EMPTY": ""},
        workdir="/srv",
        restart=Restart(RestartPolicy.ON_FAILURE, 3, 300.0, 0.5),
        stop=Stop("INT", 30.0, 2.5),
        health=Health(
            tcp=True,
            port="admin",
            interval_seconds=1.0,
            timeout_seconds=0.25,
            failures=5,
            grace_seconds=60.0,
        ),
        labels={"team": "search"},
        annotations={"note": "two\nlines"},
        constraints=(Constraint("arch", "==", ("amd64",)), Constraint("rack", "in", ("a", "b"))),
        overrides={
            0: Override(),
            2: Override(("other",), {"LOG": "info"}, Resources(500, 1024**3, 1024**3, {"gpu": 2})),
        },
        max_runtime_seconds=3600.0,
    )


def test_json_is_a_job_file_too() -> None:
    job = {
        "name": "a",
        "tasks": 2,
        "run": ["x"],
        "overrides": {"1": {"run": ["y"]}},
        "health": {"command": ["z"]},
    }
    spec = read_job(json.dumps(job).encode(), "ann")
    assert spec.overrides == {1: Override(run=("y",))}
    assert spec.health == Health(command=("z",))


@pytest.mark.parametrize(
    ("policy", "appclass"),
    [("always", Appclass.LATENCY_SENSITIVE), ("on_failure", Appclass.BATCH), ("never", Appclass.BATCH)],
)
def test_the_appclass_follows_the_restart_policy(policy: str, appclass: Appclass) -> None:
    assert read_job(f"{SMALL}restart: {{policy: {policy}}}", "a").appclass is appclass


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0.0),
        ("stop: {deregister: 3s}", 3.0),
        ("update: {handover: false}", 0.0),
        ("update: {handover: true}", 5.0),
        ("update: {handover: true}\nstop: {grace: 1s}", 5.0),
        ("update: {handover: true}\nstop: {deregister: 0s}", 0.0),
        ("update: {handover: true}\nstop: {deregister: 1m}", 60.0),
        ("exclusive: true\nstop: {deregister: 3s}", 3.0),
        ("restart: {policy: never}\nstop: {deregister: 3s}", 3.0),
    ],
)
def test_clients_have_time_to_leave_where_the_job_says_so_or_hands_over(text: str, seconds: float) -> None:
    assert read_job(SMALL + text, "a").deregister_seconds == seconds


def test_an_alloc_set_has_nothing_to_hand_over() -> None:
    text = "name: room\nkind: alloc_set\nupdate: {handover: true}\nrestart: {policy: never}"
    assert {mistake.path for mistake in wrong(text)} == {"restart", "update.handover"}


def test_other_mistakes_hide_none_of_what_cannot_be_handed_over() -> None:
    text = "restart: {policy: x}\ngang: true\nexclusive: true\nupdate: {handover: true, settle: 1}"
    assert [mistake.path for mistake in wrong(SMALL + text)] == [
        "restart.policy",
        *("update.handover", "update.handover"),
        "update.settle",
    ]


def test_an_image_implies_docker_and_needs_no_run() -> None:
    spec = read_job("name: a\nimage: tiny:1", "u")
    assert (spec.runtime, spec.run) == (Runtime.DOCKER, ())
    assert read_job("name: a\nimage: tiny:1\nrun: []", "u") == spec


@pytest.mark.parametrize(
    ("text", "priority"), [("free", 0), ("batch", 100), ("monitoring", 300), ("0", 0), ("399", 399)]
)
def test_priorities(text: str, priority: int) -> None:
    assert read_job(f"{SMALL}priority: {text}", "a").priority == priority


@pytest.mark.parametrize(
    ("text", "priority"), [("prod", 120), ("production", 120), ("batch", 110), ("free", 0), ("450", 450)]
)
def test_priorities_of_a_cell_with_other_bands(text: str, priority: int) -> None:
    assert read_job(f"{SMALL}priority: {text}", "a", BANDS).priority == priority


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("451", "451 is outside 0 to 450", ""),
        ("prood", "one of the bands monitoring, production, batch, free, prod", "did you mean prod?"),
        ("gold", "one of the bands", "or a number from 0 to 450"),
    ],
)
def test_mistakes_in_priorities_name_what_the_cell_has(text: str, message: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(f"{SMALL}priority: {text}", "a", BANDS)
    (mistake,) = caught.value.mistakes
    assert message in mistake.message
    assert hint in mistake.hint


@pytest.mark.parametrize("cpu", ["500m", "0.5", '"500m"', "0.50"])
def test_ways_to_write_cpu(cpu: str) -> None:
    assert read_job(f"{SMALL}resources: {{cpu: {cpu}}}", "a").resources.cpu_millis == 500


def test_bytes_may_be_a_plain_number() -> None:
    assert read_job(f"{SMALL}resources: {{ram: 8388608}}", "a").resources.ram_bytes == 8 * 1024**2


def test_a_probe_finds_the_only_port() -> None:
    for probe in ("{http: /}", "{tcp: true}", "{tcp: http}", "{tcp: true, port: http}"):
        health = read_job(f"{SMALL}ports: [http]\nhealth: {probe}", "a").health
        assert health is not None
        assert health.port == "http"


def test_a_name_that_looks_like_something_else_stays_a_name() -> None:
    assert read_job("name: no\nrun: [x]\nuser: 123", "a").key == "123/no"


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        # numbers
        ("tasks: 0", 3, 8, "tasks: 0 is outside 1 to 10000", "from 1 to 10000"),
        ("tasks: 10001", 3, 8, "tasks: 10001 is outside 1 to 10000", "split it into several jobs"),
        ("tasks: -1", 3, 8, "tasks: -1 is outside 1 to 10000", ""),
        ("tasks: " + "9" * 31, 3, 8, "tasks: a number of 31 digits is outside 1 to 10000", "10000"),
        ('tasks: "3"', 3, 8, 'tasks: "3" is text; a number is expected', "remove the quotes"),
        ("tasks: 012", 3, 8, "tasks: '012' is not a whole number", "write 12"),
        ("tasks: 1_000", 3, 8, "tasks: '1_000' is not a whole number", "write 1000"),
        ("tasks: 1e3", 3, 8, "tasks: '1e3' is not a whole number", "write 1000"),
        ("tasks: 0x10", 3, 8, "tasks: '0x10' is not a whole number", "write 16"),
        ("tasks: 3.0", 3, 8, "tasks: '3.0' is not a whole number", "write 3"),
        ("tasks: +3", 3, 8, "tasks: '+3' is not a whole number", "write 3"),
        ("tasks: .nan", 3, 8, "tasks: '.nan' is not a whole number", "write a whole number from 1 to 10000"),
        ("tasks: ٣", 3, 8, "tasks: '٣' is not a whole number", "write a whole number from 1 to 10000"),
        ("tasks: yes", 3, 8, "tasks: 'yes' is not a whole number", "write a whole number"),
        ("tasks:", 3, 7, "tasks: there is no value", "remove the line"),
        ("tasks: null", 3, 8, "tasks: there is no value", "remove the line"),
        ("tasks: [3]", 3, 8, "tasks: a list, where a single value is expected", ""),
        ("tasks: {a: 3}", 3, 8, "tasks: a mapping, where a single value is expected", ""),
        # unknown fields
        ("replicas: 3", 3, 1, "'replicas' is not a field of the job", "did you mean tasks?"),
        ("nodeSelector: {}", 3, 1, "'nodeSelector' is not a field of the job", "did you mean constraints?"),
        ("prioritty: 3", 3, 1, "'prioritty' is not a field of the job", "did you mean priority?"),
        ("cpu: 1", 3, 1, "'cpu' is not a field of the job", "write it inside resources: {cpu: ...}"),
        ("mem: 1", 3, 1, "'mem' is not a field of the job", "write it inside resources: {ram: ...}"),
        ("zzz: 1", 3, 1, "'zzz' is not a field of the job", "the fields are: name, kind, user"),
        ("name: other", 3, 1, "'name' is given twice; the first is in line 1", "keep one"),
        # amounts
        ("resources: {rma: 1GiB}", 3, 18, "resources.rma: '1GiB' is not a whole number", "did you mean ram?"),
        (
            'resources: {dsik: "1"}',
            3,
            19,
            'resources.dsik: "1" is text; a number is expected',
            "did you mean disk?",
        ),
        ("resources: {cpu: 1e3}", 3, 18, "resources.cpu: '1e3' is not a number with a unit", "500m"),
        ("resources: {cpu: .inf}", 3, 18, "resources.cpu: '.inf' is not a number with a unit", "500m"),
        ("resources: {cpu: 0}", 3, 18, "resources.cpu: '0' is outside 1m to 1000 cores", "500m"),
        ("resources: {cpu: -1}", 3, 18, "resources.cpu: '-1' is not a number with a unit", "500m"),
        ("resources: {cpu: 01}", 3, 18, "resources.cpu: '01' begins with a 0", "write 1"),
        ("resources: {ram: 1KB}", 3, 18, "resources.ram: '1KB' has the unit 'KB'", "256MiB"),
        ("resources: {ram: 12}", 3, 18, "resources.ram: '12' is outside 4MiB to 16TiB", "256MiB"),
        ("resources: {memory: 1GiB}", 3, 13, "'memory' is not a resource", "did you mean ram?"),
        ("resources: {gpu: 1GiB}", 3, 18, "resources.gpu: '1GiB' is not a whole number", ""),
        ("resources: {GPU: 1}", 3, 13, "resources.GPU: 'GPU' is not a name", "like gpu"),
        ("resources: 4", 3, 12, "resources: a single text, where a mapping is expected", "{cpu: 500m"),
        ("max_runtime: 10", 3, 14, "max_runtime: '10' needs a unit", "write 10s"),
        ("max_runtime: 0s", 3, 14, "max_runtime: '0s' is outside 1s to 366d", "1h"),
        # names
        ("user: Ann Lee", 3, 7, "user: 'Ann Lee' is not a name", "like ann-lee"),
        (f"user: {'a' * 64}", 3, 7, "user: 'aaa", "1 to 63"),
        ("user: ''", 3, 7, "user: '' is not a name", "1 to 63"),
        ('user: "a\\n"', 3, 7, "user: 'a\\n' is not a name", "like a"),
        ("ports: [8080]", 3, 9, "ports[0]: 8080 is a number; a port is declared by name", "ports: [http]"),
        ("ports: [a, a]", 3, 12, "ports[1]: 'a' is given twice", "keep one"),
        ("ports: {http: 80}", 3, 8, "ports: a mapping, where a list is expected", "write [http]"),
        ("ports: http", 3, 8, "ports: a single text, where a list is expected", "write [http]"),
        # choices
        ("priority: prod", 3, 11, "priority: 'prod' is not one of the bands", "did you mean production?"),
        ("priority: 400", 3, 11, "priority: 400 is outside 0 to 399", ""),
        (
            "appclass: latency-sensitive",
            3,
            11,
            "appclass: 'latency-sensitive' is not one of",
            "latency_sensitive",
        ),
        ("runtime: dokcer", 3, 10, "runtime: 'dokcer' is not one of process, docker", "did you mean docker?"),
        ("runtime: docker", 3, 10, "runtime: docker needs an image", "add image"),
        ("image: a\nruntime: process", 4, 10, "runtime: process cannot run an image", "remove it"),
        ("image: -v", 3, 8, "image: '-v' cannot be used here", "busybox:1"),
        ("root: srv", 3, 7, "root: 'srv' cannot be used here", "absolute"),
        ("network: bridge", 3, 10, "network: 'bridge' is not one of machine, none", ""),
        (
            "network: none\nports: [http]",
            4,
            8,
            "ports: nothing reaches a task with network: none",
            "remove one",
        ),
        ("image: x\nroot: /srv/a", 4, 7, "root: an image has a root of its own", "remove"),
        ("workdir: srv", 3, 10, "workdir: 'srv' cannot be used here", "absolute"),
        # parts
        (
            "restart: never",
            3,
            10,
            "restart: a single text, where a mapping is expected",
            "{policy: never}",
        ),
        (
            "restart: {policy: never, attempts: 1}",
            3,
            36,
            "restart.attempts: attempts has no effect",
            "on_failure",
        ),
        ("restart: {backoff: 6m}", 3, 20, "restart.backoff: '6m' is outside 100ms to 5m", "1s"),
        ("stop: {signal: SIGTRM}", 3, 16, "stop.signal: 'SIGTRM' is not one of the signals", "TERM?"),
        ("stop: {signal: kill}", 3, 16, "stop.signal: 'kill' is not one of the signals", "KILL?"),
        ("stop: {grace: 601s}", 3, 15, "stop.grace: '601s' is outside 0ms to 10m", "10s"),
        ("ports: [a]\nhealth: {}", 4, 9, "health: none of http, tcp, command is given", "http: /"),
        ("ports: [a]\nhealth: {http: /, tcp: true}", 4, 9, "health: both http and tcp are given", "http: /"),
        ("ports: [a]\nhealth: {http: x}", 4, 16, "health.http: 'x' cannot be used here", "write a path"),
        ("health: {http: /}", 3, 9, "health: the probe needs a port", "ports: [NAME]"),
        ("ports: [a, b]\nhealth: {tcp: true}", 4, 9, "health: the probe needs a port", "one of a, b"),
        (
            "ports: [web]\nhealth: {http: /, port: wep}",
            4,
            25,
            "health.port: 'wep' is not one of",
            "mean web?",
        ),
        ("health: {tcp: web}", 3, 15, "health.tcp: 'web' is not one of the job's ports", "add ports: [web]"),
        ("ports: [a]\nhealth: {tcp: false}", 4, 15, "health.tcp: false", "remove the line"),
        (
            "ports: [a, b]\nhealth: {tcp: a, port: b}",
            4,
            24,
            "health.port: tcp and port name different ports",
            "keep one",
        ),
        (
            "ports: [a]\nhealth: {command: [x], port: a}",
            4,
            30,
            "health.port: a command probe has no port",
            "",
        ),
        ("health: {command: []}", 3, 19, "health.command: there is no program to run", ""),
        # env, labels
        ("env: {BORGISH_X: a}", 3, 7, "env.BORGISH_X: names that begin with BORGISH_", "another name"),
        ("env: {1A: a}", 3, 7, "env.1A: '1A' cannot be used here", "LOG_LEVEL"),
        ("env: {A: }", 3, 10, "env.A: there is no value", '""'),
        ("env: {A: [b]}", 3, 10, "env.A: a list, where a single value is expected", ""),
        ('env: {A: "\\0"}', 3, 10, "a value with a NUL", "remove it"),
        ("env: [A]", 3, 6, "env: a list, where a mapping is expected", "{LOG_LEVEL: info}"),
        (f"env: {{A: {'x' * 32769}}}", 3, 10, "env.A: a text of 32769 bytes; at most 32768", ""),
        ("ports: [a]\nenv: {PORT_A: b}", 4, 7, "env: PORT_A is set by borgish", "another name"),
        (
            "ports: [a]\ngroup: {p: {run: [x], env: {PORT_A: b}}}",
            *(4, 29, "group.p.env: PORT_A is set by borgish", "another name"),
        ),
        ('labels: {a: "\\e"}', 3, 13, "labels.a: '\\x1b' holds a control character", "remove it"),
        ("labels: {-a: b}", 3, 10, "labels.-a: '-a' cannot be used here", ""),
        # constraints
        ("constraints: [rack in (r1]", 3, 15, "constraints[0]: 'rack in (r1' has a '('", "in quotes"),
        (
            "constraints: [a = b]",
            3,
            15,
            "constraints[0]: 'a = b' has '=' where '==' is meant",
            "arch == amd64",
        ),
        ("constraints: [{a: b}]", 3, 15, "constraints[0]: a mapping, where a single value", "in quotes"),
        # the order to stop, and who takes over
        ("stop: {deregister: 5}", 3, 20, "stop.deregister: '5' needs a unit", "5s"),
        ("stop: {deregister: 11m}", 3, 20, "stop.deregister: '11m' is outside 0ms to 10m", ""),
        ("deregister: 5s", 3, 1, "'deregister' is not a field of the job", "stop: {deregister: ...}"),
        ("shutdown_delay: 5s", 3, 1, "'shutdown_delay' is not", "stop: {deregister: ...}"),
        ("stop: {shutdown_delay: 5s}", 3, 8, "'shutdown_delay' is not", "did you mean deregister?"),
        ("update: {handover: 1}", 3, 20, "update.handover: '1' is neither true nor false", "true"),
        *(
            (f"{job}\nupdate: {{handover: true}}", 4, 20, f"update.handover: {message}", hint)
            for job, message, hint in (
                ("restart: {policy: never}", "only the tasks of a service", "restart: {policy: always}"),
                ("restart: {policy: on_failure}", "only the tasks of a service", "remove it, or"),
                ("exclusive: true", "a second process of an exclusive task", "or exclusive"),
                ("in: room", "the alloc of a task is given to no second one", "outside of alloc sets"),
                ("gang: true", "a gang changes as a whole", "or gang"),
            )
        ),
        # overrides
        ("overrides: {1: {}}", 3, 13, "overrides: there is no task 1; the job has 1", "the last one is 0"),
        ("overrides: {01: {}}", 3, 13, "overrides.01: '01' is not a whole number", "write 1"),
        ("overrides: {0: {rn: [a]}}", 3, 17, "'rn' is not a field of an override", "did you mean run?"),
        ("overrides: {0: {run: []}}", 3, 22, "overrides.0.run: there is no program to run", ""),
        ("overrides: {0: {env: {BORGISH_A: b}}}", 3, 23, "overrides.0.env.BORGISH_A: names", ""),
        # substitutions
        ('env: {A: "{{port.http}}"}', 3, 10, "env.A: '{{port.http}}' is not known", "add ports: [http]"),
        ('env: {A: "{{task.idx}}"}', 3, 10, "env.A: '{{task.idx}}' is not known", "{{task.index}}"),
        ('env: {A: "{{x"}', 3, 10, "env.A: a '{{' that no '}}' closes", "{{task.index}}"),
        ('workdir: "/{{a.b}}"', 3, 10, "workdir: '{{a.b}}' is not known", "known are task.index"),
        ('overrides: {0: {run: ["{{q}}"]}}', 3, 23, "overrides.0.run[0]: '{{q}}' is not known", "known are"),
        ('health: {command: ["{{q}}"]}', 3, 20, "health.command[0]: '{{q}}' is not known", "known are"),
    ],
)
def test_one_mistake(text: str, line: int, column: int, message: str, hint: str) -> None:
    mistakes = wrong(SMALL + text)
    assert len(mistakes) == 1, [m.message for m in mistakes]
    (mistake,) = mistakes
    assert (mistake.line, mistake.column) == (line, column)
    assert mistake.message.startswith(message)
    assert hint in mistake.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("name: a", "run is missing from the job", "add run: [program, argument]"),
        ("run: [a]", "name is missing from the job", "add name"),
        ("name: a\nrun: []", "run: there is no program to run", "write run: [program, argument]"),
        ('name: a\nrun: [""]', "run: the program's name is empty", ""),
        ("name: a\nrun: sleep 5", "run: a single text, where a list is expected", "write run: [sleep, 5]"),
        (
            "name: a\nrun: x | y",
            "run: a single text, where a list is expected",
            'write run: [sh, -c, "x | y"]',
        ),
        ("name: a\nrun:", "run: nothing, where a list is expected", "[program, argument]"),
        (
            "name: a\nrun: [x, {{port.a}}]",
            "a substitution without quotes",
            'put the whole value in quotes, like "{{port.a}}"',
        ),
        ("- a", "a job file is a mapping; this is a list, where a mapping is expected", "write name: web"),
        ("~", "the file is empty", "name: NAME"),
    ],
)
def test_nothing_to_run_or_no_job(text: str, message: str, hint: str) -> None:
    (mistake,) = wrong(text)
    assert mistake.message == message
    assert hint in mistake.hint


def test_a_user_who_cannot_own_a_job() -> None:
    (mistake,) = wrong(SMALL, "Ann Lee")
    assert mistake.hint == "add user: NAME"
    assert read_job(f"{SMALL}user: ann", "Ann Lee").user == "ann"


def test_all_mistakes_are_told_at_once_in_order() -> None:
    text = (
        'name: A\ntasks: 0\nrun: x\nresources: {cpu: x, ram: y}\nenv: {A: "{{q}}"}\nhealth: {tcp: b}\nzz: 1\n'
    )
    mistakes = wrong(text)
    assert [m.path for m in mistakes] == [
        "name",
        "tasks",
        "run",
        "resources.cpu",
        "resources.ram",
        "env.A",
        "health.tcp",
        "zz",
    ]
    assert [m.line for m in mistakes] == [1, 2, 3, 4, 4, 5, 6, 7]
    assert all(m.hint for m in mistakes)


def test_bounds_of_collections() -> None:
    env = ", ".join(f"A{n}: 1" for n in range(129))
    assert wrong(f"{SMALL}env: {{{env}}}")[0].message == "env: 129 entries; at most 128 are allowed"
    ports = ", ".join(f"p{n}" for n in range(33))
    assert wrong(f"{SMALL}ports: [{ports}]")[0].message == "ports: a list of 33; at most 32 are allowed"


def test_the_largest_job_is_read() -> None:
    overrides = {str(index): {"env": {"A": "b"}} for index in range(8_000)}
    spec = read_job(json.dumps({"name": "a", "run": ["x"], "tasks": 10_000, "overrides": overrides}), "u")
    assert len(spec.overrides) == 8_000
