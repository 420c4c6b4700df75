"""Where a job file says its tasks like to be: each field in its canonical form, each mistake told."""

import pytest

from borgish.errors import Invalid
from borgish.spec.file.read import read_job
from borgish.spec.job import Affinity, Constraint, Preference, Program, Spread, Toleration
from borgish.vocabulary import JobKind, Recheck

SMALL = "name: web\nrun: [serve]\n"
ALL = """
name: web
run: [serve]
ports: [http]
fixed_ports: {metrics: 9100}
in: room
gang: true
recheck: evict
preempt_within: 5s
resources: {devices: {gpu: 0.5, tpu: 2}}
prefer: [{when: "disk == ssd", weight: 10}, {when: present(gpu)}]
spread: [{over: rack, max: 2}, {over: zone}]
near: [{labels: "app == db", over: rack}]
apart: [{labels: ["app == web", "tier in (a, b)"], weight: 7}]
tolerations: [{taint: maintenance, for: 1h}, {taint: dedicated, value: ml}]
group: {proxy: {run: [proxy, "{{port.http}}"], env: {A: b}}}
"""


def test_every_field_of_placing() -> None:
    spec = read_job(ALL, "ann")
    assert (spec.ports, spec.fixed_ports) == (("http", "metrics"), {"metrics": 9100})
    assert (spec.inside, spec.gang, spec.recheck, spec.preempt_within_seconds) == (
        "ann/room",
        True,
        Recheck.EVICT,
        5.0,
    )
    assert spec.resources.devices == {"gpu": 500, "tpu": 2000}
    assert spec.prefer == (
        Preference(Constraint("disk", "==", ("ssd",)), 10),
        Preference(Constraint("gpu", "present"), 1),
    )
    assert spec.spread == (Spread("rack", 2), Spread("zone", 0))
    assert spec.near == (Affinity((Constraint("app", "==", ("db",)),), "rack"),)
    assert spec.apart == (
        Affinity((Constraint("app", "==", ("web",)), Constraint("tier", "in", ("a", "b"))), "machine", 7),
    )
    assert spec.tolerations == (Toleration("maintenance", "", 3600.0), Toleration("dedicated", "ml"))
    assert spec.group == (Program("proxy", ("proxy", "{{port.http}}"), env={"A": "b"}),)


def test_an_alloc_set_runs_nothing() -> None:
    spec = read_job("name: room\nkind: alloc_set\ntasks: 4\nresources: {cpu: 2, ram: 1GiB}\n", "ann")
    assert (spec.kind, spec.run, spec.tasks) == (JobKind.ALLOC_SET, (), 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefer: [{when: disk, weight: 1}]", "'disk' is not a condition"),
        ("prefer: [{when: 'disk == ssd', weight: -3}]", "prefer[0].weight: -3 is outside 1 to 100"),
        ("prefer: [{weight: 3}]", "when is missing from a preference"),
        ("spread: [{over: rack}, {over: rack, max: 1}]", "'rack' is given twice"),
        ("near: [{over: rack}]", "labels is missing from an affinity"),
        ("near: [{labels: []}]", "no condition is given"),
        ("in: a/b/c", "in: 'a/b/c' cannot be used here"),
        ("kind: alloc_set", "an alloc set runs no program, so run has no effect here"),
        ("gang: 1", "gang: '1' is neither true nor false"),
        ("resources: {devices: {gpu: 1.5}}", "neither a part of one device nor a number of whole ones"),
        ("ports: [http]\nfixed_ports: {http: 80}", "http is also in ports"),
        ("group: {proxy: {env: {A: b}}}", "there is no program to run"),
        ("group: {proxy: {run: ['{{port.x}}']}}", "'{{port.x}}' is not known"),
        ("tolerations: [{taint: a, for: 5}]", "needs a unit"),
    ],
)
def test_each_mistake_is_told(text: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        read_job(SMALL + text, "ann")
    assert any(message in mistake.message for mistake in raised.value.mistakes), raised.value.mistakes
