"""Where a borglet keeps secrets: what an assignment brings, who waits, what goes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from borgish.borglet.runtimes.secrets import (
    NO_SECRETS,
    NOWHERE,
    SecretFolders,
    give,
    has_secrets,
    memory_folder,
)
from borgish.errors import UnsafeConfiguration
from borgish.vocabulary import Runtime
from borgish.wire.link import Assignment, AttemptSpec, SecretValue
from tests.contract.runtime.suite import attempt_spec
from tests.deep import deep_folder


def using(**more: object) -> AttemptSpec:
    both = {"secret_files": {"db.key": "db"}, "secret_env": {"DB": "db"}}
    return attempt_spec(("true",), Runtime.PROCESS, **{**both, **more})


def holding(folders: SecretFolders, *specs: AttemptSpec, value: bytes = b"one", user: str = "ann") -> None:
    folders.hold(Assignment(1, specs, (), (SecretValue(user, "db", value),)))


@pytest.fixture
def folders(tmp_path: Path) -> SecretFolders:
    return SecretFolders(tmp_path / "memory")


def test_what_is_brought_is_there_and_its_task_waits_no_more(folders: SecretFolders) -> None:
    spec = using()
    waits = "waits for the secret db of ann: `borgctl secret set db --user ann` makes it"
    assert waits in folders.lacking([spec])[spec.key]
    holding(folders, spec)
    assert folders.lacking([spec]) == {}
    place = folders.place(spec)
    assert (Path(place.files) / "db.key").read_bytes() == (Path(place.env) / "DB").read_bytes() == b"one"
    assert folders.place(using(program="proxy")) == place, "what runs beside it has the same"


def test_a_user_passes_through_to_what_is_theirs_whatever_the_umask_is(folders: SecretFolders) -> None:
    spec, before = using(), os.umask(0o077)
    try:
        holding(folders, spec)
    finally:
        os.umask(before)
    assert Path(folders.place(spec).files).parent.stat().st_mode & 0o777 == 0o711


def test_another_value_replaces_the_file_and_leaves_it_to_whose_it_is(folders: SecretFolders) -> None:
    spec = using()
    holding(folders, spec)
    path = Path(folders.place(spec).files)
    give(str(path), 4711 if os.geteuid() == 0 else os.geteuid(), 4711)
    holding(folders, spec, value=b"two")
    (file,) = path.iterdir()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o400)
    assert file.stat().st_uid == path.stat().st_uid


def test_of_another_user_nothing_is_taken(folders: SecretFolders) -> None:
    spec = using()
    holding(folders, spec, user="bob")
    assert folders.lacking([spec])


def test_no_environment_has_a_nul_byte(folders: SecretFolders) -> None:
    spec = using(secret_files={})
    holding(folders, spec, value=b"\0")
    why = "the secret db of ann has a NUL byte, which no environment can have: use it in secret_files"
    assert folders.lacking([spec]) == {spec.key: why}
    folders.forget(spec.key)
    assert "makes it" in folders.lacking([spec])[spec.key], "nothing is known of it any more"
    holding(folders, spec, value=b"\0")
    holding(folders, spec, value=b"one")
    assert folders.lacking([spec]) == {}


def test_what_is_forgotten_is_gone(folders: SecretFolders) -> None:
    first, second = using(), using(attempt=8)
    holding(folders, first, second)
    folders.forget(first.key)
    assert [*folders.lacking([first, second])] == [first.key]
    folders.keep_only([first.key])
    assert [*folders.lacking([first, second])] == [first.key, second.key]
    holding(folders, first)
    folders.leave()
    assert not Path(folders.base).exists()


def test_what_a_task_wrote_beside_its_secrets_goes_however_deep_it_is(
    folders: SecretFolders, tmp_path: Path
) -> None:
    """Where users are not held apart, a task can write there."""
    spec = using()
    ways: list[Callable[[], None]] = [
        lambda: folders.forget(spec.key),
        lambda: folders.keep_only(()),
        folders.leave,
    ]
    for let_go in ways:
        holding(folders, spec)
        with deep_folder(Path(folders.place(spec).files) / "deep"):
            let_go()
            assert not Path(folders.place(spec).files).exists()


def test_nobody_who_has_none_waits_or_has_a_place() -> None:
    plain = using(secret_files={}, secret_env={})
    assert not has_secrets(plain)
    assert NO_SECRETS.lacking([plain]) == {}
    assert NO_SECRETS.place(plain) == NOWHERE


def test_a_machine_without_memory_for_them_says_so() -> None:
    NO_SECRETS.hold(Assignment(1, (using(),)))
    assert "no tmpfs" in NO_SECRETS.lacking([using()])[using().key]


def test_a_base_of_somebody_else_is_not_used(folders: SecretFolders, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(folders.base).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeConfiguration, match="belongs to somebody else"):
        holding(folders, using())


def test_the_folder_in_memory_is_of_this_state_folder_alone(tmp_path: Path) -> None:
    found, other = memory_folder(tmp_path / "a"), memory_folder(tmp_path / "b")
    if found is None:
        pytest.skip("this machine has no tmpfs")
    assert found != other
    assert found == memory_folder(tmp_path / "a")
