"""The guides, typed as they stand on a local cell of three machines: each says what the commands say.

Between two commands happens what a page tells in its text. Those with daemons of their own are in
test_guides_of_daemons.py; tests/tidy/test_documentation.py sees that each page has a test.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cells import RealCell, taken_down, wait_until
from tests.documents import blocks, page, typed
from tests.e2e.watched import PATIENCE_SECONDS, asking, lives, refused_for, task_of, tasks_of, watched_cell
from tests.forked import Ended
from tests.typed import Guide, differs, normal

SMALL = "resources: {cpu: 10m, ram: 8MiB}\n"
SLEEP = "run: [sleep, '100000']\n"


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[RealCell]:
    """The cell that somebody at home has."""
    with watched_cell(tmp_path / ".borgish", machines=3) as made:
        yield made


def machines_alike(line: str) -> str:
    """Return a line without which machines, tasks and counts it is about: that differs from run to run."""
    line = re.sub(r"\bmN\b", "M", line)
    line = re.sub(r"M(, M)+", "M", line)
    return re.sub(r"\d+(?:[,-]\d+)+|N(?:[,-]N)+", "N", line)


def by_whom(line: str) -> str:
    """Return a line without who typed it: here that is always who made the cell."""
    return re.sub(r"\b(ann|bob|root)\b", "WHO", line)


def first_block(name: str, language: str) -> str:
    """Return the first block of a page in this language."""
    return "\n".join(next(each.lines for each in blocks(page(name)) if each.language == language)) + "\n"


def test_access(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/access", tmp_path, "root") as guide:
        guide.file("web.yaml", f"name: web\ntasks: 3\npriority: batch\n{SLEEP}{SMALL}")
        guide.upto("borgctl audit")
        guide.shell.run("borgctl task logs web/0")
        guide.rest()


def test_applications(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/applications", tmp_path) as guide:
        guide.upto("borgctl apply configs/apps/pipeline.jsonnet")
        guide.next(1)
        guide.rest()


def test_batch(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/batch", tmp_path) as guide:
        # The four tasks with wrong inputs find them when one has finished and the others still run.
        array = (guide.shell.home / "configs/jobs/array.yaml").read_text()
        assert '"4"' in array
        array = array.replace('"4"', '"1 4 6 7"').replace("    sleep 1\n", "    sleep 100\n")
        guide.file("array.yaml", array.replace("    for index in", f"{WAITS}    for index in"))
        guide.shell.run("borgctl job submit --detach array.yaml")
        guide.next(1, more=True, also=machines_alike)
        guide.rest()


WAITS = """\
    if [ "$BORGISH_INDEX" = 9 ]; then exit 3; fi
    sleep 5
"""


def test_borgctl(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/borgctl", tmp_path) as guide:
        guide.file("web.yaml", f"name: web\ntasks: 3\nlabels: {{app: web}}\n{SLEEP}{SMALL}")
        guide.shell.run("borgctl job submit web.yaml --settle 0")
        for _ in range(2):
            assert "ann/web" in guide.next().out
        assert "ann/web/2" in guide.next().out
        guide.next()
        guide.watch("borgctl task list -l app=web --watch", "ann/web/2")
        guide.upto("source")
        source = guide.leave("source <(borgctl completion bash)")
        assert "borgctl" in guide.shell.run(f"{source}; complete -p borgctl").out
        guide.file("script.py", first_block(guide.name, "python"))
        assert "ann/web/2 m" in guide.shell.run("python script.py").out


def token_of(made: RealCell, home: Path, name: str) -> str:
    """Keep a token of ann's at home; return the address of the cell's master."""
    made.ok("user", "add", "ann")
    made.ok("token", "create", "--user", "ann", "--to", home / f"{name}.token")
    with asking(made) as client:
        return client.url


def test_cells(tmp_path: Path) -> None:
    with watched_cell(tmp_path / "east") as east, watched_cell(tmp_path / "west") as west:
        instead = {
            f"https://{name}.example:7400{pinned}": token_of(made, tmp_path, name)
            for name, made, pinned in (
                ("east", east, " --authority sha256:4f1d"),
                ("west", west, " --authority sha256:9c02"),
            )
        }
        instead |= {key.partition(" ")[0]: url for key, url in instead.items()}
        with Guide("how-to/cells", tmp_path, instead=instead) as guide:
            guide.shell.run("export XDG_CONFIG_HOME=~/.config")
            for name in ("web", "db", "new"):
                needs = "resources: {cpu: 100m, ram: 8MiB}\n"
                guide.file(f"{name}.yaml", f"name: {name}\ntasks: 2\n{SLEEP}{needs}")
            guide.upto("borgctl job list --cells all --columns")
            wait_until(lambda: len(lives(east)) == len(lives(west)) == 2, PATIENCE_SECONDS)
            guide.upto("borgctl task list --cells all -o name |")
            read = guide.next().out.split()
            assert sorted(read) == sorted([*tasks_of(east), *tasks_of(west)])
            west.kill("borgmaster")
            guide.rest()


def test_crons(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/crons", tmp_path, "root") as guide:
        nightly = (guide.shell.home / "configs/jobs/nightly.yaml").read_text()
        guide.file("nightly.yaml", nightly.replace("sleep 2", "true").replace("keep: 7", "keep: 5"))
        tick = "kind: cron\nname: tick\nschedule: '*/10 * * * * *'\nkeep: 2\nrun: ['true']\n" + SMALL
        guide.file("tick.yaml", tick)
        guide.shell.run("borgctl job submit tick.yaml")
        guide.upto("borgctl cron list")
        guide.comes("borgctl cron show tick", "dead (finished)")
        guide.comes("borgctl cron show nightly", "dead (finished)")
        guide.shell.run("borgctl cron pause tick")
        wait_until(lambda: not any(each["live"] for each in cell.items("cron", "list")), PATIENCE_SECONDS)
        guide.next(also=machines_alike)
        guide.shell.run("borgctl cron remove --yes nightly")
        guide.shell.run("borgctl apply configs/apps/pipeline.jsonnet", code=1)
        guide.file("stages.yaml", "kind: cron\nname: nightly\nschedule: '@daily'\nkeep: 5\napp: pipeline\n")
        guide.shell.run("borgctl job submit stages.yaml")
        guide.next()
        guide.comes("borgctl cron show nightly", "pending (failed)")
        guide.rest()


def test_documents(tmp_path: Path) -> None:
    with Guide("how-to/documents", tmp_path) as guide:
        guide.file("shop.yaml", first_block(guide.name, "yaml"))
        jsonnet = first_block(guide.name, "jsonnet")
        guide.file("nightly.jsonnet", jsonnet)
        guide.file("endless.jsonnet", "local f(n) = if n == 0 then 1 else f(n - 1) + f(n - 1);\nf(60)\n")
        guide.next()
        guide.next(2)
        guide.next(2)
        guide.file("nightly.jsonnet", jsonnet.replace("cpu: 2", "cpu: -2"))
        guide.next(2)
        guide.next(2)


def test_exclusive(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/exclusive", tmp_path) as guide:
        guide.shell.run("borgctl job submit configs/jobs/exclusive.yaml --settle 0")
        machine = task_of(cell, "ann/writer/0").machine
        cut = guide.shell.start(f"borgctl chaos cut {machine} --for 60s")
        guide.comes("borgctl why ann/writer/0", "It is exclusive, so it waits")
        guide.next(also=machines_alike)
        cut.terminate()
        cut.wait(PATIENCE_SECONDS)
        guide.shell.run("borgctl chaos heal")


def test_game_day(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/game-day", tmp_path) as guide:
        guide.file("web.yaml", f"name: web\ntasks: 3\n{SLEEP}{SMALL}")
        guide.shell.run("borgctl job submit web.yaml --settle 0")
        assert "cell local" in guide.shell.run(f"{guide.leave('borgctl dashboard')} --once").out
        # All of it takes five minutes, most of which pass.
        played = guide.shell.run(f"{guide.leave('borgctl chaos play')} --scenes 1 --pause 0s")
        assert "all tasks are up again after" in played.out
        guide.upto("borgctl chaos freeze")
        guide.shell.run("borgctl chaos heal")
        for _ in range(2):
            guide.shell.run(re.sub("--for [0-9]+s", "--for 100ms", guide.leave("borgctl chaos")))
        assert "no machine is in rack" in guide.next(1).err
        guide.shell.run(guide.leave("borgctl chaos fill").replace("60s", "0s"))


def test_history(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/history", tmp_path, "root") as guide:
        guide.file("web.yaml", f"name: web\ntasks: 3\nports: [http]\n{SLEEP}{SMALL}")
        guide.shell.run("borgctl job submit web.yaml --settle 0")
        guide.upto("borgctl diff noon")
        wait_until(lambda: len(lives(cell)) == 4, PATIENCE_SECONDS)
        guide.next(also=machines_alike)
        guide.next(also=machines_alike)
        guide.next(1)


def test_maintenance(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/maintenance", tmp_path) as guide:
        guide.file("web.yaml", f"name: web\ntasks: 6\n{SLEEP}{SMALL}")
        run = "run: [sh, -c, 'until [ -e done ]; do sleep 0.1; done']\n"
        guide.file(
            "sum.yaml",
            "name: sum\ntasks: 3\nrestart: {policy: on_failure}\nallow_exec: true\n"
            f"spread: [{{over: machine, max: 1}}]\n{run}{SMALL}",
        )
        guide.shell.run("borgctl job submit --settle 0 web.yaml sum.yaml")
        (on_m3,) = [each for each in tasks_of(cell, "ann/sum").values() if each.machine == "m3"]
        shown = typed(page(guide.name))[0]
        drain, told = guide.start("borgctl machine drain"), guide.shell.last_log()
        # Until the program of a task that moved has ended, the command says that, too.
        left = machines_alike(normal(shown.said[1]))
        wait_until(
            lambda: left in (machines_alike(normal(line)) for line in told.read_text().splitlines()),
            PATIENCE_SECONDS,
        )
        guide.shell.run(f"borgctl task exec {on_m3.name} -- touch done")
        said = Ended(drain.wait(PATIENCE_SECONDS), told.read_text(), "")
        assert not (why := differs(shown, said, more=True, also=machines_alike)), why
        guide.rest()


def test_monitoring(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/monitoring", tmp_path, "root") as guide:
        guide.file("web.yaml", f"name: web\ntasks: 3\n{SLEEP}{SMALL}")
        guide.shell.run("borgctl job submit web.yaml --settle 0")
        guide.shell.start("borgctl chaos cut m3 --for 60s")
        guide.comes("borgctl machine list", "down")
        guide.next(3, also=machines_alike)
        guide.next()
        query = guide.leave("sqlite3")
        found = re.fullmatch(r'sqlite3 "(file:\$HOME/.borgish/cell.db\?mode=ro)" "(.*)"', query)
        assert found, "test_up_and_down.py asks this by Python's sqlite3"


def test_order(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/order", tmp_path) as guide:
        load = "name: load\nrestart: {policy: never}\nrun: [sh, -c, 'exit 3']\n"
        guide.file("load.yaml", load + SMALL)
        guide.file("report.yaml", f"name: report\nafter: [load]\n{SLEEP}{SMALL}")
        guide.next()
        guide.comes("borgctl job list --all", "exit code 3")
        guide.next()


def test_plan(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/plan", tmp_path) as guide:
        each = cell.items("machine", "list")[0]["capacity"]["cpu_millis"]
        half = f"resources: {{cpu: {each * 6 // 10}m, ram: 8MiB}}\n"
        guide.file("low.yaml", f"name: low\nuser: bob\ntasks: 3\npriority: free\n{SLEEP}{half}")
        guide.shell.run("borgctl job submit --settle 0 low.yaml")
        web = (
            f"name: web\ntasks: 3\npriority: production\nrun: [sleep, '100000']\nenv: {{LEVEL: low}}\n{half}"
        )
        guide.file("web.yaml", web)
        guide.next(also=machines_alike)
        small = re.sub("resources.*", SMALL.strip(), web)
        guide.file("web.yaml", small)
        guide.shell.run("borgctl job submit --settle 0 web.yaml")
        generation = cell.items("job", "show", "web")["job"]["generation"]
        guide.shell.run("LOGNAME=bob borgctl job scale ann/web 5")
        scaled = guide.leave("borgctl job scale web 4 --if-generation")
        refused = guide.shell.run(re.sub(r"generation \d+", f"generation {generation}", scaled), code=1)
        assert f"ann/web was changed since you looked (generation {generation}, now" in refused.err
        changed = small.replace("100000", "200000").replace("low", "high").replace("tasks: 3", "tasks: 5")
        guide.file("web.yaml", changed)
        guide.shell.run("borgctl job submit --detach web.yaml")
        guide.next(also=by_whom)


def test_rollback(cell: RealCell, tmp_path: Path) -> None:
    refused_for(cell, 1.0)
    with Guide("how-to/rollback", tmp_path, "root") as guide:
        at_noon(guide)
        spoiled(cell, guide)
        guide.next(also=moved)
        guide.next(also=moved)
        guide.shell.run("borgctl secret set mode --user ann", "broken")
        guide.next()
        guide.comes("borgctl status", "was restarted")
        guide.next(also=machines_alike)


def at_noon(guide: Guide) -> None:
    """Have two jobs of ann run and make the checkpoint ``noon``."""
    guide.shell.run("borgctl secret set mode --user ann", "well")
    depends = "secret_env: {MODE: mode}\nrun: [sh, -c, '[ $MODE = well ] && exec sleep 100000']\n"
    web = "name: web\nuser: ann\ntasks: 3\npriority: production\nenv: {VERSION: '1'}\n"
    guide.file("web.yaml", f"{web}update: {{at_a_time: 4, settle: 0s}}\n{depends}{SMALL}")
    apart = "spread: [{over: machine, max: 1}]\n"
    guide.file("db.yaml", f"name: db\nuser: ann\ntasks: 2\n{apart}{SLEEP}{SMALL}")
    guide.shell.run("borgctl quota set ann --band production --cpu 200m --ram 1GiB")
    guide.shell.run("borgctl job submit --settle 0 web.yaml db.yaml")
    guide.shell.run("borgctl checkpoint create --name noon")


def spoiled(cell: RealCell, guide: Guide) -> None:
    """Do in five minutes what the page tells of, where ``db`` has a task on the machine that goes."""
    away = task_of(cell, "ann/db/0").machine
    cordoned = next(name for name in ("m1", "m2", "m3") if name != away)
    web = (guide.shell.home / "web.yaml").read_text()
    guide.file("web.yaml", web.replace("tasks: 3", "tasks: 4").replace("'1'", "'2'"))
    guide.shell.run(f"borgctl chaos kill {away}")
    guide.comes("borgctl machine list", "down")
    guide.shell.run(f"borgctl machine remove --yes {away}")
    guide.shell.run("borgctl job submit --settle 0 web.yaml")
    guide.shell.run("borgctl quota set ann --band production --cpu 50m --ram 1GiB")
    guide.shell.run(f"borgctl machine cordon {cordoned} --reason oops")
    wait_until(lambda: len(lives(cell)) == 6, PATIENCE_SECONDS)


def moved(line: str) -> str:
    """Return a line alike for any task that is elsewhere, or anew where it was."""
    how = "(version: N -> N; )?(machine: M -> M|attempt: another one, on the same machine)"
    return re.sub(rf"ann/(db|web)/N:? {how}", "a task moved", machines_alike(line))


def test_secrets(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/secrets", tmp_path) as guide:
        guide.next(stdin="hush")
        (_, shown) = typed(page(guide.name))
        guide.file("web.yaml", "\n".join(shown.said))
        guide.next()
        guide.shell.run("borgctl plan web.yaml")


def test_tasks(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/tasks", tmp_path) as guide:
        run = "run: [sh, -c, 'echo status=502; exec sleep 100000']\n"
        guide.file("web.yaml", f"name: web\ntasks: 2\nlabels: {{app: shop, tier: front}}\n{run}{SMALL}")
        guide.shell.run("borgctl job submit --settle 0 web.yaml")
        guide.comes("borgctl logs web", "ann/web/1")
        guide.next()
        for _ in range(2):
            guide.watch("borgctl logs -f", "status=502")


def test_updates(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/updates", tmp_path) as guide:
        run = "run: [python3, -m, http.server, --bind, 127.0.0.1, '{{port.http}}']\nports: [http]\n"
        web = f"name: web\ntasks: 3\n{run}update: {{settle: 3s}}\nresources: {{cpu: 10m, ram: 32MiB}}\n"
        guide.file("web.yaml", web)
        guide.shell.run("borgctl job submit --settle 0 web.yaml")
        guide.file("web.yaml", f"{web}env: {{RELEASE: '2'}}\n")
        guide.next()
        guide.next(more=True, also=machines_alike)
        guide.file("web.yaml", web.replace("http.server", "http.sever"))
        guide.next(1, more=True, also=between_starts)
        guide.next(also=by_whom)
        while guide.coming:
            guide.leave("borgctl")  # test_handover_story.py types these, under load


def between_starts(line: str) -> str:
    """Return a line alike whether a program that ends again and again runs in this moment or not."""
    line = re.sub("(starting|crash-looping|backing off|up again).*", "ends at once", machines_alike(line))
    line = re.sub(r"\S+/pythonN", "python", line)
    return line.removesuffix(" --previous")


def test_what_if(cell: RealCell, tmp_path: Path) -> None:
    with Guide("how-to/what-if", tmp_path) as guide:
        cpu = cell.items("machine", "list")[0]["capacity"]["cpu_millis"]
        small, large = (f"resources: {{cpu: {cpu * part // 100}m, ram: 16MiB}}\n" for part in (15, 60))
        web = f"name: web\ntasks: 4\npriority: free\n{SLEEP}{small}"
        guide.file("web.yaml", web)
        guide.file("db.yaml", f"name: db\ntasks: 2\npriority: production\n{SLEEP}{small}")
        guide.shell.run("borgctl job submit --settle 0 web.yaml db.yaml")
        guide.shell.run("borgctl checkpoint create --name noon")
        guide.shell.run("borgctl machine cordon m1 --reason oops")
        guide.file("newer.yaml", web.replace("tasks: 4", "tasks: 5") + "env: {VERSION: v2}\n")
        guide.shell.run("borgctl job submit --detach newer.yaml")
        guide.shell.run("borgctl checkpoint export noon noon.checkpoint --with-journal")
        guide.file("big.yaml", f"name: big\nuser: bob\ntasks: 2\npriority: production\n{SLEEP}{large}")
        at_the_prompt(guide)
        for _ in range(5):
            guide.next(also=machines_alike)
        guide.file("M.csv", "name,cpu_millis,ram_mib,devices,device_model\nm1,4000,4096,0,\n")
        guide.file(
            "T.csv",
            "job,index,user,priority,cpu_millis,ram_mib,devices,device_millis,constraints\nweb,0,ann,200,100,16,0,0,\n",
        )
        guide.next()


def at_the_prompt(guide: Guide) -> None:
    """Type what stands at the prompt of fauxmaster, which says what is shown."""
    (example, *_) = typed(page(guide.name))
    prompt = re.compile(r"\S+@\S+> (.+)")
    asked = [found[1] for line in example.said if (found := prompt.match(line))]
    answered = example._replace(said=[line for line in example.said if not prompt.match(line)])
    assert len(asked) > 3
    said = guide.shell.run(guide.leave("fauxmaster open"), "\n".join(asked))
    assert not (why := differs(answered, said, also=machines_alike)), why


def test_the_first_page(tmp_path: Path) -> None:
    with taken_down(RealCell(tmp_path / ".borgish")), Guide("../README", tmp_path, "root") as guide:
        # test_demo.py runs the first, and the second runs this.
        assert [guide.leave("./scripts/").split()[0] for _ in range(3)] == [
            "./scripts/demo",
            "./scripts/test",
            "./scripts/env",
        ]
        guide.upto("borgctl dashboard")
        dashboard = guide.leave("borgctl dashboard").partition("#")[0]
        assert "root/web" in guide.shell.run(f"{dashboard} --once").out
        web = f"name: web\nuser: ann\ntasks: 4\nspread: [{{over: machine, max: 1}}]\n{SLEEP}{SMALL}"
        guide.file("wide.yaml", web)
        guide.shell.run("borgctl job kill --yes web")
        guide.shell.run("borgctl job submit --timeout 5s wide.yaml", code=3)
        guide.next()
        guide.shell.run("borgctl job kill --yes ann/web")
        web = f"name: web\nuser: ann\ntasks: 3\nupdate: {{settle: 1s}}\n{SLEEP}{SMALL}"
        guide.file("web.yaml", web)
        guide.shell.run("borgctl job submit --settle 0 web.yaml")
        guide.shell.run("borgctl checkpoint create --name noon")
        guide.file("web.yaml", web.replace("[sleep, '100000']", "['false']"))
        guide.next(1, more=True, also=machines_alike)
        guide.rest()
