"""What people write who come from elsewhere, and what they are told."""

import pytest

from borgish.errors import Invalid, Mistake
from borgish.spec.cron import read_cron
from borgish.spec.file.read import read_job
from borgish.spec.job import Container, Mount

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {name: web, image: "nginx:1.25", args: [-g, daemon off;]}
"""
CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup}
spec:
  schedule: "*/5 2 * * *"
  timeZone: Europe/Berlin
  jobTemplate: {spec: {template: {spec: {containers: [{image: busybox, command: [sh]}]}}}}
---
apiVersion: v1
kind: Service
"""
COMPOSE = """
version: "3"
services:
  web: {image: nginx, ports: ["80:8080"], depends_on: [db]}
  db: {image: "postgres:15", command: postgres -c fsync=on}
volumes: {data: {}}
"""


def mistakes(text: str) -> tuple[Mistake, ...]:
    with pytest.raises(Invalid) as caught:
        read_job(text, "ann")
    return caught.value.mistakes


def hints(text: str) -> dict[str, str]:
    """Return the hint of each mistake by its path, in a job that is otherwise right."""
    return {each.path: each.hint for each in mistakes(f"name: web\nrun: [x]\n{text}")}


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            DEPLOYMENT,
            "a Kubernetes Deployment",
            '{name: web, tasks: 3, image: "nginx:1.25", run: ["-g", "daemon off;"]}',
        ),
        (
            CRON_JOB,
            "a file of 2 Kubernetes manifests (CronJob, Service)",
            '{name: backup, kind: cron, schedule: "*/5 2 * * *", time_zone: "Europe/Berlin", image:',
        ),
        (
            "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}]}",
            "a Kubernetes Service",
            "nothing like this",
        ),
        (
            COMPOSE,
            "a Docker Compose file",
            '{name: web, after: [{job: db, until: up}], image: "nginx"} and {name: db, image: "postgres',
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: backup}",
            "a Kubernetes CronJob",
            '{name: backup, kind: cron, schedule: "30 2 * * mon-fri", run: ["PROGRAM"]}',
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 2}",
            "a Kubernetes Deployment",
            '{name: NAME, tasks: 2, run: ["PROGRAM"]}',
        ),
        (
            "apiVersion: policy/v1\nkind: PodDisruptionBudget",
            "a Kubernetes PodDisruptionBudget",
            "`borgctl budget set`",
        ),
        ('job "web" {\n  datacenters = ["dc1"]\n}', "a Nomad job file", "in YAML"),
    ],
    ids=[
        *("deployment", "cronjob", "service", "compose"),
        *("cronjob-without-container", "deployment-without-container", "budget", "nomad"),
    ],
)
def test_files_of_other_systems_are_recognised(text: str, what: str, hint: str) -> None:
    (only,) = mistakes(text)
    assert only.message == f"this is {what}, not a job file of borgish"
    assert hint in only.hint


def test_what_is_suggested_for_another_system_s_file_is_a_job_file() -> None:
    (only,) = mistakes(DEPLOYMENT)
    suggested = only.hint.removeprefix("as a job file it begins ").partition("}")[0] + "}"
    assert read_job(suggested, "ann").tasks == 3


def test_what_is_suggested_for_a_cron_job_is_a_cron_file() -> None:
    (only,) = mistakes(CRON_JOB)
    suggested = only.hint.partition("begins ")[2].partition("}")[0] + "}"
    assert read_cron(suggested, "ann").schedule == "*/5 2 * * *"


@pytest.mark.parametrize(
    ("written", "until"),
    [
        ("[db, cache]", "[{job: db, until: up}, {job: cache, until: up}]"),
        ("{db: {condition: service_healthy}}", "[{job: db, until: healthy}]"),
        ("{db: {condition: service_completed_successfully}}", "[{job: db, until: finished}]"),
    ],
)
def test_what_a_service_of_a_compose_file_depends_on_it_starts_after(written: str, until: str) -> None:
    (only,) = mistakes(f"services: {{web: {{image: nginx, depends_on: {written}}}}}")
    assert f"{{name: web, after: {until}, image" in only.hint


DEPLOYED_AS_SOMEBODY = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - image: nginx
    securityContext:
      runAsUser: 101
      runAsGroup: 102
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
"""
COMPOSED_AS_ROOT = """
services:
  web: {image: nginx, user: root, cap_add: [NET_ADMIN], volumes: ["/srv/a:/a:ro", "/srv/b:/b", "data:/c"]}
"""


@pytest.mark.parametrize(
    ("text", "container"),
    [
        (DEPLOYED_AS_SOMEBODY, Container("101:102", read_only=True)),
        (
            COMPOSED_AS_ROOT,
            Container(
                "0",
                capabilities=("NET_ADMIN",),
                mounts=(Mount("/srv/a", "/a"), Mount("/srv/b", "/b", write=True)),
            ),
        ),
    ],
    ids=["pod", "compose"],
)
def test_as_whom_containers_run_elsewhere_is_suggested(text: str, container: Container) -> None:
    (only,) = mistakes(text)
    suggested = "{name: web" + only.hint.partition("{name: web")[2].partition("; borgctl")[0]
    assert read_job(suggested, "ann").container == container


@pytest.mark.parametrize("text", ["kind: app\nname: x", "name: a\nrun: [x]\n---\nname: b", "[{name: a}]"])
def test_a_file_that_apply_takes_is_shown_by_it_too(text: str) -> None:
    (only,) = mistakes(text)
    assert "`borgctl apply FILE`" in only.hint
    assert "`borgctl apply --dry-run FILE`" in only.hint


def test_a_hostile_file_of_another_system_gives_a_short_hint() -> None:
    long = "x" * 10_000
    (only,) = mistakes(f"services: {{{long}: {{image: {long}, command: {long}}}, b: [], c: 1, d: 2}}")
    assert len(only.hint) < 1000


@pytest.mark.parametrize(("tasks", "hint"), [("-1", "from 1 to"), ("0", "from 1 to"), ("10001", "split it")])
def test_too_few_tasks_are_not_told_to_split_the_job(tasks: str, hint: str) -> None:
    assert hint in hints(f"tasks: {tasks}")["tasks"]


@pytest.mark.parametrize(
    ("word", "policy"),
    [
        ("always", "always"),
        ("OnFailure", "on_failure"),
        ("unless-stopped", "always"),
        ("no", "never"),
        ("x", "on_"),
    ],
)
def test_a_restart_policy_as_a_single_word_gets_its_mapping(word: str, policy: str) -> None:
    assert f"{{policy: {policy}" in hints(f"restart: {word}")["restart"]


@pytest.mark.parametrize("word", ["always", "unless-stopped", "OnFailure", "no", "x"])
def test_what_a_cron_is_told_of_its_restart_is_accepted(word: str) -> None:
    text = "{kind: cron, name: tick, schedule: '@daily', run: [x], restart: %s}"
    with pytest.raises(Invalid) as caught:
        read_cron(text % word, "ann")
    (mistake,) = caught.value.mistakes
    hint = mistake.hint.removeprefix("write ")
    assert read_cron(text % hint, "ann").job.restart.policy in ("on_failure", "never")


@pytest.mark.parametrize("port", ["80:8080", "127.0.0.1:80:8080", "53/udp", "8000-8010", "8080"])
def test_numbered_ports_are_told_to_get_a_name(port: str) -> None:
    assert "ports: [http]" in hints(f'ports: ["{port}"]')["ports[0]"]


@pytest.mark.parametrize("text", ["8" * 5000, "1" + "k" * 5000])
def test_a_long_text_is_not_repeated_in_its_mistake(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(f'{{name: web, run: [x], ports: ["{text}"], resources: {{ram: "{text}"}}}}', "ann")
    assert [mistake.path for mistake in caught.value.mistakes] == ["ports[0]", "resources.ram"]
    assert all(len(f"{mistake.message}{mistake.hint}") < 500 for mistake in caught.value.mistakes)


def test_a_name_of_digits_and_a_dash_is_no_numbered_port() -> None:
    assert read_job("{name: web, run: [x], ports: [h2-8080, p-1]}", "ann").ports == ("h2-8080", "p-1")


@pytest.mark.parametrize(
    "health",
    [
        "{http: no-path, port: htp}",
        "{http: /, port: htp, interval: 5}",
        "{tcp: 'true', port: htp, failures: x}",
    ],
)
def test_an_unknown_port_of_a_probe_is_reported_beside_other_mistakes(health: str) -> None:
    found = hints(f"ports: [http]\nhealth: {health}")
    assert found.pop("health.port") == "did you mean http?"


def test_a_port_of_a_probe_that_is_wrong_in_itself_is_one_mistake() -> None:
    assert set(hints("ports: [http, admin]\nhealth: {http: /, port: 80}")) == {"health.port"}
    assert set(hints("ports: [http, admin]\nhealth: {tcp: 80}")) == {"health.tcp"}
    assert set(hints("ports: http\nhealth: {http: /, port: http}")) == {"ports"}
