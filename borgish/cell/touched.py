"""How a change travels on: the store writes the records that were touched, the scheduler reads those
machines, the link makes those assignments anew."""

import msgspec


class Touched(msgspec.Struct):
    """The names of what ``apply`` wrote to since last taken."""

    jobs: set[str] = set()
    tasks: dict[str, set[int]] = {}  # by job
    machines: set[str] = set()  # their own record
    quotas: set[str] = set()
    budgets: set[str] = set()
    crons: set[str] = set()
    placements: set[str] = set()  # machines where a task came or went
    machines_gone: set[str] = set()
    jobs_gone: set[str] = set()
    tasks_gone: dict[str, int] = {}  # by job: indexes from this one on are no more
    versions: set[str] = set()  # jobs whose earlier versions are others
    leases: dict[str, set[int]] = {}  # by job: indexes whose leases are others
    handovers: dict[str, set[int]] = {}  # by job: indexes whose incoming attempts are others
    apps: set[str] = set()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def changed_jobs(self) -> set[str]:
        """Return the jobs of which anything was written, or that are no more."""
        found = self.jobs | self.jobs_gone
        return found.union(self.tasks, self.tasks_gone, self.leases, self.handovers)

    def add(self, later: "Touched") -> None:
        """Take in what was touched after this."""
        self.machines -= later.machines_gone
        for name in self.__struct_fields__:
            there, more = getattr(self, name), getattr(later, name)
            if isinstance(there, set):
                there |= more
                continue
            for key, each in more.items():
                known = there.get(key)
                if known is None:
                    there[key] = each
                elif isinstance(each, set):
                    known |= each
                else:
                    there[key] = min(known, each)
