import tomllib
from pathlib import Path

import msgspec
import pytest

from borgish.bands import Bands
from borgish.cell.model import Rules
from borgish.errors import UnsafeConfiguration
from borgish.master.host.settings import Checkpoints, Journal, QuotaSettings, Settings, read_settings
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.schedule import SchedulerSettings
from borgish.store.checkpoints import Retention
from borgish.vocabulary import Band

ROOT = Path(__file__).resolve().parents[3]


def settings_with(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "cell.toml"
    file.write_text(f'name = "local"\n{text}')
    return read_settings(file)


def test_bands_and_quotas_are_as_usual_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert settings_with(tmp_path, "").rules == Rules()
    text = "[quota]\nrequired = true\n[bands]\nproduction = 250\n[bands.names]\nprod = 'production'\n"
    bands = Bands(production=250, names={"prod": Band.PRODUCTION})
    assert settings_with(tmp_path, text).rules == Rules(bands, quota_required=True)
    assert settings_with(tmp_path, "[quota]\nfootprint_mib = 2").rules == Rules(
        footprint_bytes_max=2 * 1024**2
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[bands]\nproduction = 100", "bands: they are not in ascending order"),
        ("[bands]\nfree = 1", "bands: free begins"),
        ("[bands]\ngold = 400", "bands.gold: there is no such key"),
        ("[bands]\nbatch = 'low'", "bands.batch: must be a whole number, and is a text in quotes"),
        ("[bands.names]\nprod = 'produktion'", "produktion"),
        ("[bands.names]\nbatch = 'free'", "batch is a band's own name"),
        ("[quota]\nrequired = 1", "quota.required: must be true or false, and is a whole number"),
        ("[quota]\nneeded = true", "quota.needed: there is no such key"),
    ],
)
def test_bands_and_quotas_that_make_no_sense_end_it(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UnsafeConfiguration, match=words) as caught:
        settings_with(tmp_path, text)
    assert caught.value.exit_code == 74


def test_the_file_to_copy_shows_every_key_of_bands_and_quotas_as_usual(tmp_path: Path) -> None:
    text = (ROOT / "configs" / "cell.toml").read_text()
    shown = tomllib.loads(text.replace("# [bands.names]", "[bands.names]").replace("# prod =", "prod ="))
    assert shown["bands"].keys() == set(Bands.__struct_fields__)
    assert shown["quota"].keys() == set(QuotaSettings.__struct_fields__)
    assert read_settings(ROOT / "configs" / "cell.toml").rules == Rules()
    assert msgspec.convert(shown["bands"], Bands).names == {"prod": Band.PRODUCTION}


def test_the_scheduler_is_as_the_file_says(tmp_path: Path) -> None:
    assert settings_with(tmp_path, "").scheduling == SchedulerSettings()
    text = "[scheduler]\npolicy = 'worst_fit'\nrelaxed_randomisation = false\n"
    text += "[cell]\nfailure_domains = ['row']\n"
    assert settings_with(tmp_path, text).scheduling == SchedulerSettings(
        "worst_fit", relaxed_randomisation=False, failure_domains=("row",)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("policy = 'tetris'", f"scheduler.policy: 'tetris' is not known. Known are {', '.join(POLICIES)}"),
        ("policy = 7", "scheduler.policy: must be a text in quotes, and is a whole number"),
        ("score_cache = 1", "scheduler.score_cache: must be true or false, and is a whole number"),
        ("cache = true", "scheduler.cache: there is no such key"),
        ("failure_domains = ['rack']", "scheduler.failure_domains: there is no such key"),
        ("[cell]\nfailure_domains = ['a b']", "cell.failure_domains: 'a b' cannot be an attribute"),
        ("[cell]\nfailure_domains = ['machine']", "'machine' cannot be an attribute of machines"),
        ("[cell]\nfailure_domains = 'rack'", "cell.failure_domains: must be a list in [ ], and is a text"),
        ("[cell]\ndomains = []", "cell.domains: there is no such key"),
    ],
)
def test_a_scheduler_that_nobody_knows_ends_it(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UnsafeConfiguration) as caught:
        settings_with(tmp_path, f"[scheduler]\n{text}")
    assert words in str(caught.value)
    assert caught.value.exit_code == 74


def test_the_file_to_copy_shows_the_scheduler_as_usual_and_every_policy() -> None:
    text = (ROOT / "configs" / "cell.toml").read_text()
    shown = tomllib.loads(text)
    assert shown["scheduler"].keys() | shown["cell"].keys() == set(SchedulerSettings.__struct_fields__)
    assert read_settings(ROOT / "configs" / "cell.toml").scheduling == SchedulerSettings()
    described = text.partition("[scheduler]")[2].partition("[quota]")[0]
    assert all(policy in described for policy in POLICIES)


def test_a_machine_is_not_down_before_one_poll_can_have_failed(tmp_path: Path) -> None:
    file = tmp_path / "cell.toml"
    file.write_text('name = "local"\n[poll]\nhold_seconds = 20\n')
    with pytest.raises(UnsafeConfiguration, match="less than one poll may take"):
        read_settings(file)
    file.write_text('name = "local"\n[poll]\nhold_seconds = 20\ndown_after_seconds = 60\n')
    assert read_settings(file).poll.hold_seconds == 20


def test_between_two_polls_no_lease_ends(tmp_path: Path) -> None:
    file = tmp_path / "cell.toml"
    file.write_text('name = "local"\n[poll]\nhold_seconds = 28\ndown_after_seconds = 60\n')
    with pytest.raises(UnsafeConfiguration, match="leases of exclusive tasks"):
        read_settings(file)


def test_what_is_kept_of_checkpoints_and_journal(tmp_path: Path) -> None:
    file = tmp_path / "cell.toml"
    file.write_text('name = "local"\n')
    found = read_settings(file)
    assert (found.checkpoints, found.journal) == (Checkpoints(), Journal())
    file.write_text(
        'name = "local"\n[checkpoints]\nevery_minutes = 5\nevery_entries = 100\n'
        "keep = {latest = 2, hourly = 3, daily = 31, named = 4}\n[journal]\nkeep_days = 30\n"
    )
    found = read_settings(file)
    assert found.checkpoints == Checkpoints(5.0, 100, Retention(2, 3, 31, 4))
    assert found.journal.keep_days == 30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("checkpoints_kept = 24", "checkpoints_kept"),
        ("[checkpoints]\nevery_minutes = 0", "checkpoints.every_minutes: must be above 0, and is 0"),
        ("[checkpoints]\nevery_entries = -1", "checkpoints.every_entries: must be at least 1, and is -1"),
        ("[checkpoints]\nkeep = {hourly = -1}", "checkpoints.keep.hourly: must be at least 0, and is -1"),
        (
            "[disruption]\naffected_share_max = 2",
            "disruption.affected_share_max: must be at most 1, and is 2",
        ),
        ("[eviction]\nlost_share_max = 2", "eviction.lost_share_max: must be at most 1, and is 2"),
        (
            "[poll]\ndown_after_refused_seconds = 0",
            "poll.down_after_refused_seconds: must be above 0, and is 0",
        ),
        ("[rollback]\nstops_per_second = 0", "rollback.stops_per_second: must be at least 1, and is 0"),
        ("[checkpoints]\nkeep = {weekly = 1}", "weekly"),
        ('[checkpoints]\nkeep = {named = "some"}', "named"),
        ("[disk]\nfree_mib = -1", "disk.free_mib: must be at least 0, and is -1"),
        ("[disk]\nfree_percent = 51", "disk.free_percent: must be at most 50, and is 51"),
        ("[journal]\nkeep_days = -1", "journal.keep_days: must be at least 0, and is -1"),
        ("[journal]\nkeep_days = nan", "journal.keep_days: must be at least 0, and is nan"),
        ("[limits]\nrequests_per_second = -1", "limits.requests_per_second: must be at least 0, and is -1"),
        ("[limits]\nrequests_burst = 0", "limits.requests_burst: must be at least 1, and is 0"),
        ("[limits]\nrefused_per_second = nan", "limits.refused_per_second: must be at least 0, and is nan"),
        (
            "[limits]\nunauthenticated_per_minute = 1e10",
            r"limits.+: must be below 1e\+09, and is 10000000000.0",
        ),
        ("[journal]\nkeep_days = 7", "cannot be kept with checkpoints of 7 days"),
    ],
)
def test_numbers_out_of_bounds_are_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "cell.toml"
    file.write_text(f'name = "local"\n{text}\n')
    with pytest.raises(UnsafeConfiguration, match=words):
        read_settings(file)


def test_what_would_do_is_said(tmp_path: Path) -> None:
    file = tmp_path / "cell.toml"
    file.write_text('name = "local"\n[journal]\nkeep_days = 30\n')
    with pytest.raises(UnsafeConfiguration) as caught:
        read_settings(file)
    assert "checkpoints.keep.daily 31 or more" in caught.value.hint
    file.write_text('name = "local"\n[journal]\nkeep_days = 6\n')
    assert read_settings(file).journal.keep_days == 6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("advertise = 'host-a:7400'", "advertise: 'host-a:7400' is not the address of a borgmaster"),
        ("masters = ['https://a:1', 'https://b:1/x']", "masters: 'https://b:1/x' is not the address"),
        (
            "[lease]\nttl_seconds = 4.0",
            "lease: renew_seconds 1.5, deadline_seconds 4 and ttl_seconds 4 do not grow",
        ),
        ("[lease]\nrenew_seconds = 0", "renew_seconds 0"),
        ("[lease]\nttl = 6.0", "lease.ttl: there is no such key. Did you mean lease.ttl_seconds?"),
    ],
)
def test_several_masters_that_could_not_find_or_follow_each_other_end_it(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(UnsafeConfiguration) as caught:
        settings_with(tmp_path, text)
    assert words in str(caught.value)
    assert caught.value.exit_code == 74


def test_where_to_listen_can_be_said_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cell.toml"
    path.write_text('name = "c"\nlisten = "127.0.0.1:7400"\n')
    assert read_settings(path, "127.0.0.1:7401").port == 7401
    with pytest.raises(UnsafeConfiguration, match="listen: '7401' is not HOST:PORT"):
        read_settings(path, "7401")
