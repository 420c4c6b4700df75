"""``scripts/sim``: runs seeds and prints, for each, its journal's hash and what came of it."""

import argparse
import logging
import sys

from borgish.sim.world import Verdict, World


def main() -> None:
    """Run the seeds asked for; exit 1 when anything was wrong with any of them."""
    arguments = _arguments()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        logging.disable()  # what daemons log of the faults that they are given is no news here
        try:
            verdict = World(seed, machines=arguments.machines).run()
        finally:
            logging.disable(logging.NOTSET)
        print(line(verdict), flush=True)
        for problem in verdict.problems:
            print(f"    {problem}", flush=True)
        failed += bool(verdict.problems)
    print(f"{arguments.seeds - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def line(verdict: Verdict) -> str:
    """Return one seed's line: seed, hash, verdict, and what happened in it."""
    result = f"{len(verdict.problems)} PROBLEMS" if verdict.problems else "ok"
    return (
        f"seed {verdict.seed}  {verdict.journal_sha256}  {result}  "
        f"({verdict.entries} entries, {verdict.starts} starts, {verdict.stops} stops, "
        f"{verdict.masters} masters, {verdict.borglet_deaths} borglets killed)"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/sim",
        description="Run a whole cell on a virtual clock, with faults, once for each seed.",
    )
    parser.add_argument("--seeds", type=_count, default=20, help="how many seeds (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--machines", type=_count, default=6, help="machines in the cell (%(default)s)")
    return parser.parse_args()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    main()
