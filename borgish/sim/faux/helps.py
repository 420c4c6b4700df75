"""What can be asked of fauxmaster, each with a line of help: all that help needs, so that it comes at once.

``verbs`` and ``changes`` say what each does. The order is that of the help: where to look, what to try, what
to ask.
"""

_CHANGES = {
    "submit": "submit a job file",
    "kill": "end a job, or one task of it",
    "restart": "give a job, or one task of it, a fresh attempt",
    "scale": "change a job's tasks",
    "drain": "have everything leave a machine, by a taint that evicts",
    "cordon": "place nothing new on a machine",
    "uncordon": "place new tasks on a machine again",
    "taint": "mark a machine",
    "untaint": "take a mark away",
    "quota": "set what a user may ask for in a band",
}

HELP = {
    "show": "what is in the cell",
    "step": "go through what really happened next",
    "next": "go on to the next event of a kind",
    "at": "go to another moment",
    "diff": "what differs between two moments",
    **{name: f"on the copy: {text}" for name, text in _CHANGES.items()},
    "schedule": "on the copy: place what waits",
    "run": "on the copy: let time pass",
    "why": "on the copy: why tasks wait",
    "back": "let go of the copy",
    "fits": "how many more tasks of a job find room",
    "evicts": "whom a change would evict",
    "lose": "what follows when machines die at once",
    "replay": "what would be decided otherwise today",
    "compact": "how few machines would do",
}

AT_THE_PROMPT_ONLY = frozenset({"back"})
