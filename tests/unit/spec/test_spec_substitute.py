"""What a placed task runs: substitutions, overrides, its environment."""

import msgspec
import pytest

from borgish.resources import Resources
from borgish.spec.job import Health, JobSpec, Override, Program
from borgish.spec.substitute import port_variable, references, render

PORTS = {"http": 20001, "admin-api": 20002}
SPEC = JobSpec(
    name="web",
    user="ann",
    tasks=3,
    run=("serve", "--port={{port.http}}", "100%", "{{ task.index }}/{{task.name}}"),
    ports=("http", "admin-api"),
    env={"WHERE": "{{machine.name}} in {{cell.name}}", "PLAIN": "50% {x}", "J": "{{job.name}}"},
    workdir="/srv/{{task.index}}",
    health=Health(http="/{{task.index}}", port="http"),
    overrides={
        1: Override(env={"PLAIN": "{{port.admin-api}}", "MORE": "1"}),
        2: Override(run=("other", "{{task.index}}")),
    },
)


def test_everything_is_filled_in() -> None:
    task = render(SPEC, 0, "c1", "m7", 42, PORTS)
    assert task.run == ("serve", "--port=20001", "100%", "0/ann/web/0")
    assert task.workdir == "/srv/0"
    assert task.health == Health(http="/0", port="http")
    assert task.env == {
        "WHERE": "m7 in c1",
        "PLAIN": "50% {x}",
        "J": "web",
        "BORGISH_CELL": "c1",
        "BORGISH_USER": "ann",
        "BORGISH_JOB": "web",
        "BORGISH_TASK": "ann/web/0",
        "BORGISH_INDEX": "0",
        "BORGISH_MACHINE": "m7",
        "BORGISH_ATTEMPT": "42",
        "PORT_HTTP": "20001",
        "PORT_ADMIN_API": "20002",
    }


def test_overrides_are_laid_over() -> None:
    second, third = (render(SPEC, index, "c", "m", 1, PORTS) for index in (1, 2))
    assert (second.env["PLAIN"], second.env["MORE"], second.env["J"]) == ("20002", "1", "web")
    assert second.run[0] == "serve"
    assert third.run == ("other", "2")
    assert third.env["PLAIN"] == "50% {x}"


def test_nothing_to_fill_in_shares_what_the_job_has() -> None:
    spec = JobSpec(name="a", user="u", tasks=1, run=("sleep", "100%d"), health=Health(command=("true",)))
    task = render(spec, 0, "c", "m", 1, {})
    assert task.run is spec.run
    assert task.health is spec.health


def test_a_health_command_is_filled_in() -> None:
    spec = msgspec.structs.replace(SPEC, health=Health(command=("probe", "{{port.http}}")))
    assert render(spec, 0, "c", "m", 1, PORTS).health == Health(command=("probe", "20001"))


def test_a_rendered_environment_belongs_to_its_task() -> None:
    render(SPEC, 0, "c", "m", 1, PORTS).env["J"] = "changed"
    assert render(SPEC, 0, "c", "m", 1, PORTS).env["J"] == "web"


def test_a_changed_spec_is_not_mistaken_for_the_old_one() -> None:
    for number in range(3000):
        spec = JobSpec(name=f"j{number}", user="u", tasks=1, run=("echo", "{{job.name}}"))
        assert render(spec, 0, "c", "m", 1, {}).run == ("echo", f"j{number}")


def test_an_override_for_a_job_in_a_container_may_run_nothing() -> None:
    spec = JobSpec(name="a", user="u", tasks=1, run=("x",), image="i", overrides={0: Override(run=())})
    assert render(spec, 0, "c", "m", 1, {}).run == ()


@pytest.mark.parametrize(
    ("text", "names", "unclosed"),
    [
        ("plain } {", (), False),
        ("{{a}}{{ b }}", ("a", "b"), False),
        ("{{{a}}}", ("a",), False),
        ("{{a", (), True),
        ("{{a}} {{b", ("a",), True),
        ("{{a{b}}", (), True),
        ("{{}}", ("",), False),
        ("{" * 30_000, (), True),
    ],
)
def test_references(text: str, names: tuple[str, ...], *, unclosed: bool) -> None:
    assert references(text) == (names, unclosed)


def test_port_variable() -> None:
    assert port_variable("admin-api") == "PORT_ADMIN_API"


def test_a_task_is_told_its_devices() -> None:
    spec = JobSpec("a", "u", 1, ("x",), resources=Resources(devices={"gpu": 2000, "video-card": 500}))
    env = render(spec, 0, "c", "m", 1, {}, ("gpu:0", "gpu:3", "video-card:1")).env
    told = {name: text for name, text in env.items() if "DEVICE" in name}
    assert told == {
        "BORGISH_DEVICES_GPU": "0,3",
        "CUDA_VISIBLE_DEVICES": "0,3",
        "NVIDIA_VISIBLE_DEVICES": "0,3",
        "BORGISH_DEVICES_VIDEO_CARD": "1",
        "BORGISH_DEVICE_MILLIS_VIDEO_CARD": "500",
    }


def test_a_task_sees_its_own_devices_whatever_its_job_says() -> None:
    part, own = Resources(devices={"gpu": 250}), Override(resources=Resources(devices={"gpu": 1000}))
    env = {"CUDA_VISIBLE_DEVICES": "all"}
    spec = JobSpec("a", "u", 2, ("x",), resources=part, env=env, overrides={1: own})
    first, second = (render(spec, index, "c", "m", 1, {}, ("gpu:1",)).env for index in (0, 1))
    assert (first["CUDA_VISIBLE_DEVICES"], first["BORGISH_DEVICE_MILLIS_GPU"]) == ("1", "250")
    assert "BORGISH_DEVICE_MILLIS_GPU" not in second


def test_the_programs_of_a_group_are_filled_in_and_told_their_names() -> None:
    proxy = Program("proxy", ("proxy", "{{port.http}}"), "", {"TO": "{{task.name}}"}, "/srv/{{task.index}}")
    plain = Program("plain", ("p", "100%"))
    task = render(msgspec.structs.replace(SPEC, group=(proxy, plain)), 2, "c1", "m7", 42, PORTS)
    assert task.group == (
        Program("proxy", ("proxy", "20001"), "", {"TO": "ann/web/2", "BORGISH_PROGRAM": "proxy"}, "/srv/2"),
        Program("plain", ("p", "100%"), env={"BORGISH_PROGRAM": "plain"}),
    )
    assert "BORGISH_PROGRAM" not in task.env


def test_no_program_of_a_group_can_take_the_devices_of_others() -> None:
    mine = Program("side", ("s",), env={"CUDA_VISIBLE_DEVICES": "all", "A": "b"})
    spec = JobSpec("a", "u", 1, ("x",), resources=Resources(devices={"gpu": 1000}), group=(mine,))
    (side,) = render(spec, 0, "c", "m", 1, {}, ("gpu:1",)).group
    assert side.env == {"A": "b", "BORGISH_PROGRAM": "side"}
