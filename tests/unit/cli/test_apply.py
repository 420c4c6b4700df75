"""``borgctl apply``: what is printed of what it would do."""

from borgish.cli.commands.apply import planned
from borgish.wire.api_apps import AppChangeView, AppCronChangeView, AppPlanView


def test_what_stays_as_it_is_is_counted_and_what_there_is_to_say_is_said() -> None:
    jobs = tuple(AppChangeView(f"ann/j{number}", "unchanged") for number in range(3))
    over = AppChangeView("ann/step", "unchanged", notes=("it is over",))
    plan = AppPlanView("ann/shop", "ann/shop applied, version 2: 5 unchanged", 1, 2, (*jobs, over))
    assert planned(plan).splitlines() == [
        "ann/shop: would be version 2: 5 unchanged",
        "  = ann/step: unchanged",
        "      note: it is over",
        "  = ann/j0, ann/j1, ann/j2: unchanged",
    ]
    with_cron = AppPlanView(*("ann/shop", "", 1, 2), jobs, crons=(AppCronChangeView("ann/n", "unchanged"),))
    assert "  = 3 jobs, 1 cron: unchanged" in planned(with_cron)
