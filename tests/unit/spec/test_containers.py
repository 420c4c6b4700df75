"""What a job file says of its containers, and which of that is a privilege."""

import pytest

from borgish.errors import Invalid
from borgish.spec.file.read import read_job
from borgish.spec.job import Container, JobSpec, Mount
from borgish.spec.privileges import privileges_of

JOB = "name: web\nimage: busybox:1\ncontainer: "


def container(text: str) -> Container:
    return read_job(f"{JOB}{text}", "ann").container


def mistake(text: str) -> str:
    with pytest.raises(Invalid) as caught:
        container(text)
    (only,) = caught.value.mistakes
    return f"{only.message} | {only.hint}"


def test_by_default_it_is_open_to_nothing() -> None:
    spec = read_job("{name: web, image: 'busybox:1'}", "ann")
    assert spec.container == Container()
    assert spec.container.ids == (65532, 65532)


@pytest.mark.parametrize(
    ("written", "ids"),
    [("1000", (1000, 1000)), ("1000:100", (1000, 100)), ("7:7", (7, 7)), ("root", (0, 0)), ("0", (0, 0))],
)
def test_users_are_numbers(written: str, ids: tuple[int, int]) -> None:
    assert container(f"{{user: '{written}'}}").ids == ids


def test_capabilities_have_one_spelling() -> None:
    written = "{user: root, capabilities: [CAP_NET_ADMIN, chown]}"
    assert container(written).capabilities == ("NET_ADMIN", "CHOWN")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{user: www-data}", "'www-data' is not a user's number"),
        ("{user: '010'}", "not a user's number"),
        ("{user: 4294967295}", "is above 2147483647"),
        ("{user: root, capabilities: [ALL]}", "nobody gets all capabilities"),
        ("{user: root, capabilities: [net_admn]}", "did you mean NET_ADMIN?"),
        ("{capabilities: [NET_ADMIN]}", "programs of root only, and these are not | remove them, or write"),
        ("{mounts: [{from: /srv/a, to: /a}, {from: /srv/b, to: /a}]}", "'/a' is given twice"),
        ("{mounts: [{from: srv, to: /a}]}", "an absolute path, like /srv/data"),
        ("{mounts: [{from: /srv/../etc, to: /a}]}", "a long way to write '/etc'"),
        ("{mounts: [{from: //srv, to: /a}]}", "a long way to write '/srv'"),
        ("{mounts: [{from: /, to: /a}]}", "no folder of a machine that containers get"),
        ("{mounts: [{from: /var, to: /a}]}", "no folder of a machine that containers get"),
        ("{mounts: [{from: /etc/ssl, to: /a}]}", "no folder of a machine that containers get"),
        ("{mounts: [{from: /var/run/docker.sock, to: /a}]}", "no folder of a machine that containers get"),
        ("{mounts: [{from: /srv/a, to: /proc/1}]}", "no place for a folder of the machine"),
        ("{mounts: [{from: /srv/a, to: /}]}", "no place for a folder of the machine"),
        ("{privileged: true}", "'privileged' is not a field of container"),
    ],
)
def test_what_cannot_be_asked_for(text: str, words: str) -> None:
    assert words in mistake(text)


def test_a_job_without_an_image_has_no_container() -> None:
    with pytest.raises(Invalid, match="the job has no image"):
        read_job("{name: web, run: [serve], container: {user: 1000}}", "ann")


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (Container(), ()),
        (Container("1000:100", read_only=True), ()),
        (Container("0"), ("container-root",)),
        (Container("1000:0"), ("container-root",)),
        (Container("0:1000"), ("container-root",)),
        (
            Container("0", capabilities=("NET_ADMIN", "CHOWN")),
            ("container-root", "capability:NET_ADMIN", "capability:CHOWN"),
        ),
        (
            Container(mounts=(Mount("/srv/a", "/a"), Mount("/srv/b", "/b", write=True))),
            ("mount:/srv/a", "mount-write:/srv/b"),
        ),
        (Container(mounts=(Mount("/srv/a", "/a"), Mount("/srv/a", "/b"))), ("mount:/srv/a",)),
    ],
)
def test_what_needs_a_grant(asked: Container, names: tuple[str, ...]) -> None:
    assert privileges_of(JobSpec("web", "ann", 1, (), image="busybox:1", container=asked)) == names
