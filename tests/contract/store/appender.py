"""A master that only writes, to be killed: prints each position once it is durable."""

import sys

from borgish.cell.events import TasksEvicted, TasksPlaced
from borgish.store.open import open_store
from borgish.vocabulary import Eviction
from tests.contract.store.samples import CELL, JOB, Life


def main(url: str) -> None:
    life = Life(open_store(url, CELL))
    life.story()
    while True:
        life.do(TasksPlaced(JOB, (1,), ("m1",), ((20001,),)))
        print(life.cell.position, flush=True)
        life.do(TasksEvicted(JOB, (1,), Eviction.RESTART))
        print(life.cell.position, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
