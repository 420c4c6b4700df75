"""Differences between jobs, in words."""

from borgish.resources import Resources
from borgish.spec.diff import differences
from borgish.spec.job import Constraint, Health, JobSpec, Override, Restart
from borgish.vocabulary import RestartPolicy

OLD = JobSpec(name="web", user="ann", tasks=3, run=("serve",))


def test_nothing_differs() -> None:
    assert differences(OLD, OLD) == ()


def test_everything_that_differs_is_named() -> None:
    new = JobSpec(
        name="web",
        user="ann",
        tasks=5,
        run=("serve", "-v"),
        priority=200,
        resources=Resources(1500, 256 * 1024**2, 0, {"gpu": 1}),
        env={"TOKEN": "secret"},
        restart=Restart(RestartPolicy.NEVER, within_seconds=60.0),
        health=Health(tcp=True, port="http"),
        constraints=(Constraint("arch", "==", ("amd64",)),),
        overrides={0: Override(env={"A": "b"})},
        image="i\x1b",
    )
    lines = differences(OLD, new)
    assert lines[:9] == (
        "tasks: 3 -> 5",
        'run: ["serve"] -> ["serve", "-v"]',
        "image: nothing -> i\\x1b",
        "priority: 0 (free) -> 200 (production)",
        "resources.cpu: 100m -> 1.5",
        "resources.ram: 128MiB -> 256MiB",
        "restart.policy: always -> never",
        "restart.within: 10m -> 60s",
        'constraints: [] -> ["arch == amd64"]',
    )
    assert "resources.gpu: added 1" in lines
    assert "health.tcp: added true" in lines
    assert "health.port: added http" in lines
    assert "overrides.0.env.A: added" in lines


def test_values_of_variables_are_not_told() -> None:
    one, two = (JobSpec(name="a", user="u", tasks=1, run=("x",), env={"K": value}) for value in ("s1", "s2"))
    assert differences(one, two) == ("env.K: changed",)


def test_amounts_that_look_alike_are_told_exactly() -> None:
    one, two = (
        JobSpec(name="a", user="u", tasks=1, run=("x",), resources=Resources(1, 10**9 + n)) for n in (0, 1)
    )
    assert differences(one, two) == ("resources.ram: 1000000000 -> 1000000001",)


def test_long_values_are_cut() -> None:
    one, two = (JobSpec(name="a", user="u", tasks=1, run=("x" * n,)) for n in (500, 501))
    assert len(differences(one, two)[0]) < 150
