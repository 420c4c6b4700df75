"""Secrets of plain programs: files and variables that the program has, and nobody else."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.borglet.runtimes.secrets import SecretFolders, memory_folder
from borgish.vocabulary import Runtime
from borgish.wire.link import Assignment, AttemptSpec, LogWanted, SecretValue
from tests.contract.runtime.suite import Watched, attempt_spec, text
from tests.integration.runtimes.machine import end_all

VALUE = b"sword\nfish\n"
SHOW = 'printf %s "$DB"; cat "$BORGISH_SECRETS/db.key"'


@pytest.fixture
def folders(tmp_path: Path) -> SecretFolders:
    base = memory_folder(tmp_path)
    if base is None:
        pytest.skip("this machine has no tmpfs")
    return SecretFolders(base)


@pytest.fixture
async def watched(tmp_path: Path, folders: SecretFolders) -> AsyncIterator[Watched]:
    watched = await Watched(ProcessRuntime(tmp_path / "m1", secrets=folders)).open()
    yield watched
    await watched.runtime.close()
    end_all(tmp_path / "m1")
    folders.leave()


def using(*run: str, **more: object) -> AttemptSpec:
    both = {"secret_files": {"db.key": "db"}, "secret_env": {"DB": "db"}}
    return attempt_spec(run, Runtime.PROCESS, **both, **more)


def hold(folders: SecretFolders, spec: AttemptSpec, value: bytes = VALUE) -> None:
    folders.hold(Assignment(1, (spec,), (), (SecretValue("ann", "db", value),)))


def contents(folder: Path) -> list[bytes]:
    """Return what is in all files beneath a folder, pipes aside."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def said(watched: Watched, spec: AttemptSpec) -> str:
    await watched.runtime.start(spec, 1)
    await watched.end_of(spec.key)
    return await text(watched.runtime.logs(spec.key, LogWanted()))


async def test_a_program_has_its_secrets_as_they_are(watched: Watched, folders: SecretFolders) -> None:
    spec = using("sh", "-c", SHOW)
    hold(folders, spec)
    assert await said(watched, spec) == VALUE.decode() * 2


async def test_none_of_it_is_on_a_disk(watched: Watched, folders: SecretFolders, tmp_path: Path) -> None:
    spec = using("sh", "-c", "sleep 1000")
    hold(folders, spec, b"swordfish")
    await watched.runtime.start(spec, 1)
    written = contents(tmp_path)
    assert written
    assert not any(b"swordfish" in each for each in written)


async def test_it_reads_and_cannot_change_them(watched: Watched, folders: SecretFolders) -> None:
    lines = (
        'cd "$BORGISH_SECRETS"',
        "exec 2>/dev/null",
        "(echo x > db.key) || echo kept",
        "(: > n) || echo shut",
    )
    spec = using("sh", "-c", "\n".join(lines))
    hold(folders, spec)
    if watched.runtime.measures()["files"] != "held":
        pytest.skip("the files of a task are not held apart here")
    assert await said(watched, spec) == "kept\nshut\n"


async def test_another_value_is_in_the_file_at_once_and_in_the_environment_of_the_next_start(
    watched: Watched, folders: SecretFolders
) -> None:
    waits = 'until grep -q two "$BORGISH_SECRETS/db.key"; do sleep 0.02; done; echo "$DB"'
    spec = using("sh", "-c", waits)
    hold(folders, spec, b"one")
    await watched.runtime.start(spec, 1)
    hold(folders, spec, b"two")
    await watched.end_of(spec.key)
    await watched.runtime.start(spec, 2)
    await watched.end_of(spec.key)
    output = [
        await text(watched.runtime.logs(spec.key, LogWanted(previous=previous))) for previous in (True, False)
    ]
    assert output == ["one\n", "two\n"]


async def test_a_command_beside_it_has_them_too(watched: Watched, folders: SecretFolders) -> None:
    spec = using("sleep", "1000")
    hold(folders, spec)
    await watched.runtime.start(spec, 1)
    output, code, _ = await watched.runtime.exec(spec.key, ("sh", "-c", SHOW), 60.0)
    assert (output, code) == (VALUE * 2, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="tasks of several users need root")
async def test_another_users_task_sees_nothing_of_them(watched: Watched, folders: SecretFolders) -> None:
    hold(folders, spec := using("sleep", "1000"))
    await watched.runtime.start(spec, 1)
    where = folders.place(spec)
    looks = f"cat {where.files}/db.key {where.env}/DB {folders.base}/*/*/* 2>/dev/null; echo; echo nothing"
    other = attempt_spec(("sh", "-c", looks), Runtime.PROCESS, task="bob/spy/0")
    assert (await said(watched, other)).strip() == "nothing"


async def test_secrets_that_a_boot_took_are_said_to_be_gone(watched: Watched, folders: SecretFolders) -> None:
    spec = using("true")
    hold(folders, spec)
    shutil.rmtree(folders.base)
    with pytest.raises(Exception, match="its secrets are not there"):
        await watched.runtime.start(spec, 1)
