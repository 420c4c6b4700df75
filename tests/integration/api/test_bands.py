"""Whoever starts tasks may have them: who asks, whose they are, in which band, by each such route."""

import json
from functools import partial

import msgspec
import pytest

from borgish.bands import DEFAULT_BANDS as BANDS
from borgish.cell import commands
from borgish.cell.access.model import Principal, Role
from borgish.cell.crons.model import Cron
from borgish.cell.model import App, AppVersion, Version
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import read_cron
from borgish.spec.file.read import read_job
from borgish.vocabulary import Band
from tests.integration.api.fakes import PRINCIPALS, TOKENS, RunningApi
from tests.integration.api.test_door import ask_many
from tests.unit.api.cells import NOW, job

ALL = {Band.MONITORING, Band.PRODUCTION, Band.BATCH, Band.FREE}
GIVEN = {Band.BATCH, Band.FREE}
OF_ONE_BAND = {"bgt_batch": Principal("ann", Role.USER, bands=(Band.BATCH,))}
MAY: dict[str, dict[str, set[Band]]] = {
    "bgt_admin": {"ann": ALL, "bob": ALL},
    "bgt_ann": {"ann": {Band.PRODUCTION, *GIVEN}, "bob": set()},  # ann was granted production
    "bgt_member": {"ann": {Band.PRODUCTION, *GIVEN}, "bob": set()},  # and ben is in the group ann
    "bgt_bob": {"ann": set(), "bob": GIVEN},
    "bgt_batch": {"ann": {Band.BATCH}, "bob": set()},
    "bgt_operator": {"ann": set(), "bob": set()},
    "bgt_reader": {"ann": set(), "bob": set()},
    "bgt_join": {"ann": set(), "bob": set()},
}
"""In which bands who has a token may have tasks, by whose they are."""

STARTS = {
    "/v1/jobs": commands.SubmitJob,
    "/v1/crons": commands.SetCron,
    "/v1/apply": commands.ApplyApp,
    "/v1/jobs/{}/web/scale": commands.ScaleJob,
    "/v1/jobs/{}/web/restart": commands.RestartTasks,
    "/v1/jobs/{}/web/undo": commands.UndoUpdate,
    "/v1/jobs/{}/web/resume": commands.ResumeUpdate,
    "/v1/crons/{}/nightly/run": commands.RunCron,
    "/v1/crons/{}/nightly/resume": commands.ResumeCron,
    "/v1/apps/{}/shop/undo": commands.UndoApp,
    "/v1/apps/{}/shop/run": commands.RunApp,
}


class Owned(msgspec.Struct):
    """What somebody has in one band, as the files say it."""

    user: str
    band: Band

    @property
    def _more(self) -> str:
        once = "restart: {policy: on_failure}"  # else no application runs it again
        return f"user: {self.user}\npriority: {BANDS.floor(self.band)}\nrun: [sh]\n{once}\n"

    @property
    def job(self) -> str:
        return f"name: web\n{self._more}"

    @property
    def cron(self) -> str:
        return f"kind: cron\nname: nightly\nschedule: 0 2 * * *\n{self._more}"

    def body(self, path: str) -> str:
        """Return what is asked at a path."""
        files = {"/v1/jobs": self.job, "/v1/crons": self.cron}
        apply = {"sources": [{"name": "shop.yaml", "text": self.job}], "app": "shop", "user": self.user}
        asked = {"/v1/apply": apply, "/v1/jobs/{}/web/scale": {"tasks": 100}}
        return files.get(path) or json.dumps(asked.get(path, {}))

    def put(self, api: RunningApi) -> None:
        """Have the master begin anew with it."""
        api.master.reset()
        spec, cron = read_job(self.job.encode(), self.user), read_cron(self.cron.encode(), self.user)
        web = job(spec, [], uid=7)
        web.earlier = {1: Version(spec, NOW.wall, self.user)}
        present = AppVersion(AppSpec("shop", self.user), (Document(spec),), NOW.wall, self.user)
        shop = App(f"{self.user}/shop", 8, present, version=2, earlier={1: present})
        cell = api.master.cell
        cell.jobs[spec.key], cell.apps[shop.key] = web, shop
        cell.crons[f"{self.user}/nightly"] = Cron(cron, NOW.wall, self.user)


@pytest.mark.parametrize("token", MAY)
def test_who_starts_tasks_may_have_them(api: RunningApi, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*MAY} == {*PRINCIPALS, *OF_ONE_BAND}
    monkeypatch.setattr(TOKENS, "principals", PRINCIPALS | OF_ONE_BAND)
    with ask_many(api) as asked:
        for user, bands in MAY[token].items():
            for band in Band:
                for path, command in STARTS.items():
                    owned = Owned(user, band)
                    api.do(partial(owned.put, api))
                    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/yaml"}
                    if not path.endswith(("/jobs", "/crons")):
                        headers["Content-Type"] = "application/json"
                    status = asked("POST", path.format(user), headers, owned.body(path))
                    taken = [type(each.command) for each in api.do(lambda: api.master.asked)]
                    what = f"{token} {path} {user} {band}: {status}"
                    assert taken == ([command] if band in bands else []), what
                    assert (status == 403) == (band not in bands), what
