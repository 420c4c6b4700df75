"""Which folders of a machine its containers get."""

import os
from pathlib import Path

import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.mounts import MountRules, why_not
from borgish.spec.job import NEVER_MOUNTED, Mount


def mounted(rules: MountRules, source: Path) -> str:
    (mount,) = rules.real((Mount(str(source), "/data"),))
    return mount.source


def test_what_is_listed_is_mounted_where_its_links_lead(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to("real")
    assert mounted(MountRules((str(tmp_path / "data"),)), tmp_path / "data") == str(tmp_path / "real")


def test_nothing_is_mounted_unless_it_is_listed_and_nothing_in_it_or_around_it(tmp_path: Path) -> None:
    (tmp_path / "data" / "inner").mkdir(parents=True)
    rules = MountRules((str(tmp_path / "data"),))
    for source in (tmp_path, tmp_path / "data" / "inner", tmp_path / "other"):
        with pytest.raises(StartFailed, match="not among the folders") as caught:
            mounted(rules, source)
        assert caught.value.permanent
    with pytest.raises(StartFailed, match="not among the folders"):
        mounted(MountRules(), tmp_path / "data")


@pytest.mark.parametrize("leads_to", [*NEVER_MOUNTED, "/etc/ssl", "/var/lib", "/proc/self/root"])
def test_a_link_leads_to_nothing_that_no_container_gets(tmp_path: Path, leads_to: str) -> None:
    if not os.path.isdir(leads_to):
        pytest.skip(f"there is no {leads_to} here")
    (tmp_path / "data").symlink_to(leads_to)
    with pytest.raises(StartFailed, match="is not mounted"):
        mounted(MountRules((str(tmp_path / "data"),)), tmp_path / "data")


@pytest.mark.parametrize("name", ["docker.sock", "containerd.sock", "cell.db"])
def test_a_folder_with_the_keys_to_more_is_not_mounted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert f"has {name} in it" in why_not(str(tmp_path), ())


def test_what_borgish_keeps_for_itself_is_not_mounted(tmp_path: Path) -> None:
    state = tmp_path / "borgish" / "state"
    state.mkdir(parents=True)
    (state / "process").mkdir()
    for folder in (state, state / "process", state.parent):
        assert "overlaps" in why_not(str(folder), (str(state),))
    (tmp_path / "data").mkdir()
    assert why_not(str(tmp_path / "data"), (str(state),)) == ""


def test_what_is_not_there_or_no_folder(tmp_path: Path) -> None:
    rules = MountRules((str(tmp_path / "gone"), str(tmp_path / "file")))
    (tmp_path / "file").touch()
    with pytest.raises(StartFailed, match="No such file"):
        mounted(rules, tmp_path / "gone")
    with pytest.raises(StartFailed, match="is no folder"):
        mounted(rules, tmp_path / "file")
