"""``borgctl doctor`` on a fresh cell: nothing fails, and each warning is in the list that is shipped."""

import json
import os

from tests.cells import ROOT, RealCell

ACCEPTED = ROOT / "configs" / "doctor-accepted.toml"
NOT_ROOT = {"uid", "metadata", "docker metadata address", "docker neighbours", "network", "listening"}
"""What a borglet that is not root cannot hold, or doctor not see."""


def test_a_fresh_cell_has_nothing_that_fails_until_its_master_is_killed(own: RealCell) -> None:
    own.ok("checkpoint", "create")
    said = own.borgctl("doctor", "--security", "--accept", ACCEPTED, "-o", "json")
    findings = json.loads(said.out)
    left = {it["check"]: it["text"] for it in findings if it["level"] != "pass"}
    assert [it for it in findings if it["level"] == "fail"] == []
    assert left.keys() <= (NOT_ROOT if os.geteuid() else set()), left
    assert said.code == (3 if left else 0)
    own.kill("borgmaster")
    said = own.borgctl("doctor", "--security")
    assert said.code == 1
    assert "no borgmaster runs on" in said.out
    assert "`borgctl up` starts it" in said.out
    assert "nobody uses it, and it is whole" in said.out
    own.ok("up")
