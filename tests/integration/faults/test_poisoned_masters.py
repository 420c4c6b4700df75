"""A real borgmaster is given what it fails at, and what breaks it, beside the work of others."""

import http.client
import json
from pathlib import Path

import pytest

from borgish.errors import CellBroken
from tests.faults.ledger import JOB, Request
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege


def poison() -> Request:
    return Request("/v1/jobs?user=eve", JOB.format(name="poison", tasks=1).encode())


def test_what_cannot_be_decided_is_refused_and_reported(nursery: Nursery, tmp_path: Path) -> None:
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(before="tests.faults.planted:fail_at_poison")
        assert siege.serves(), siege.said()
        for _ in range(2):
            status, body = siege.ask(poison())
            problem = json.loads(body)
            assert status == problem["status"] == 500
            assert problem["detail"] == "internal error while handling SubmitJob; nothing was changed"
            assert "report it" in problem["hint"]
            siege.more(3)
        assert "the master failed at SubmitJob of " in siege.said()
        assert "ZeroDivisionError: nobody foresaw this" in siege.said()
        assert siege.end_in_peace() == []


def test_what_breaks_the_cell_ends_one_master_and_no_second(nursery: Nursery, tmp_path: Path) -> None:
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(before="tests.faults.planted:break_at_poison")
        assert siege.serves(), siege.said()
        siege.more(3)
        request = poison()
        with pytest.raises((OSError, http.client.HTTPException)):
            siege.ask(request)
        assert siege.ended() == CellBroken.exit_code == 70
        assert "SubmitJob of " in siege.said()
        assert "broke the cell in memory: ZeroDivisionError('half of it')" in siege.said()
        assert "Nothing of it is stored. Start again" in siege.said()
        assert siege.problems() == []
        siege.start(before="tests.faults.planted:break_at_poison")
        assert siege.serves(), siege.said()
        status, body = siege.ask(request)
        assert status == 500
        assert "this request made a borgmaster fail" in json.loads(body)["detail"]
        siege.more(3)
        siege.say_the_same_again()
        assert siege.end_in_peace() == []
