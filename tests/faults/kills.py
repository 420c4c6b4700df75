"""Kill -9 of a borgmaster under load, at random moments of its life, again and again."""

import random
import time
from collections.abc import Callable

import msgspec

from borgish.clock import SystemClock
from tests.faults.siege import Siege

STARTING_SHARE = 0.25  # of the kills come while the master starts, the others while it works
STARTING_SECONDS_MAX = 0.4
WORKING_SECONDS_MAX = 0.15
WORK_DONE = (1, 4)  # so many requests are acknowledged before; the kill comes in the middle of others


class Report(msgspec.Struct):
    """What came of it. ``start_seconds`` are those of the masters that came to serve."""

    kills: int = 0
    acknowledged: int = 0
    start_seconds: list[float] = []
    problems: list[str] = []


def kill_at_random(
    siege: Siege,
    count: int,
    seed: int,
    judged_each: int = 1,
    told: Callable[[int], None] = lambda _kills: None,
) -> Report:
    """Kill so many masters, judge after every ``judged_each`` kills, and at the end with all at rest.

    Ends early at the first problem. ``told`` is called after each kill.
    """
    chance, report = random.Random(seed), Report()
    siege.found_cell()
    siege.begin()
    while report.kills < count and not report.problems:
        _one(siege, chance, report)
        report.kills += 1
        if report.kills % judged_each == 0:
            report.problems += siege.problems()
        told(report.kills)
    if not report.problems:
        siege.start()
        assert siege.serves(), siege.said()
        siege.more(4)
        siege.say_the_same_again()
        report.problems += siege.end_in_peace()
    report.acknowledged = sum(client.done for client in siege.clients)
    return report


def _one(siege: Siege, chance: random.Random, report: Report) -> None:
    began = SystemClock().now().mono
    siege.start()
    if chance.random() < STARTING_SHARE:
        time.sleep(chance.uniform(0, STARTING_SECONDS_MAX))
    elif siege.serves():
        report.start_seconds.append(SystemClock().now().mono - began)
        siege.more(chance.randint(*WORK_DONE))  # however long that takes here
        time.sleep(chance.uniform(0, WORKING_SECONDS_MAX))
    if siege.has_ended():
        report.problems.append(f"a master ended by itself with {siege.ended()}: {siege.said()}")
    else:
        siege.kill()
