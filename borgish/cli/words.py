"""Words that people bring from other systems: those that are commands here as well, and what is meant by the
others, with their own arguments put in.

A dangerous command is offered where its other name was typed, or it was misspelt, and never for a word that
merely looks a little like it.
"""

import shlex
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from borgish.text import safe

SAME = {
    "cp": ("task", "cp"),
    "exec": ("task", "exec"),
    "ls": ("job", "list"),
    "ps": ("task", "list"),
    "version": ("--version",),
}
"""Words that work: what they stand for. They change nothing."""

_AT_TOP = {
    "attach": "task exec -it",
    "cordon": "machine cordon",
    "drain": "machine drain",
    "edit": "job edit",
    "init": "job init",
    "inspect": "job show",
    "kill": "job kill",
    "nodes": "machine list",
    "pods": "task list",
    "restart": "job restart",
    "scancel": "job kill",
    "sinfo": "machine list",
    "squeue": "job list",
    "stop": "job kill",
    "submit": "job submit",
    "uncordon": "machine uncordon",
    "undo": "job undo",
    "undrain": "machine undrain",
    "validate": "job check",
    "wait": "job wait",
}
"""What other systems call a command of ours, or where it is."""

_STEERING = {verb: f"job update {verb}" for verb in ("pause", "promote", "resume", "status")}
_GROUPS = {
    "alloc": {
        "": "task list",
        "exec": "task exec",
        "logs": "task logs",
        "status": "task show",
        "stop": "task kill",
    },
    "deployment": {**_STEERING, "": "job list", "fail": "job update undo", "list": "job list"},
    "node": {
        "": "machine list",
        "drain": "machine drain",
        "inspect": "machine show",
        "ls": "machine list",
        "rm": "machine remove",
        "status": "machine show",
    },
    "rollout": {
        **_STEERING,
        "": "job update",
        "history": "job history",
        "restart": "job restart",
        "undo": "job undo",
    },
}
"""What other systems have groups for: their commands, and what is meant by the group alone."""

_FOR_FILES = ("create", "run", "sbatch", "srun", "update")
"""What is given a program or changes here, where files are submitted."""

_EFFECTS = {"PreferNoSchedule": "avoid", "NoSchedule": "refuse", "NoExecute": "evict"}
_PLACEHOLDERS = {"task": "TASK", "job": "JOB", "machine": "MACHINE"}

_KINDS = {
    **dict.fromkeys(("po", "pod", "task", "alloc", "container"), "task"),
    **dict.fromkeys(
        ("deploy", "deployment", "statefulset", "daemonset", "replicaset", "job", "service"), "job"
    ),
    **dict.fromkeys(("no", "node", "machine", "host", "client"), "machine"),
    **dict.fromkeys(("cj", "cronjob", "cron"), "cron"),
    **dict.fromkeys(("ns", "namespace", "user", "serviceaccount"), "user"),
    **dict.fromkeys(("app", "application", "release", "stack"), "app"),
    **dict.fromkeys(("pdb", "poddisruptionbudget", "budget"), "budget"),
    **dict.fromkeys(("resourcequota", "quota"), "quota"),
    **{name: name for name in ("secret", "group", "token", "checkpoint")},
}
"""Kinds of objects, and our noun for each."""

_ENDS = {
    "task": "kill",
    "job": "kill",
    "app": "kill",
    "token": "revoke",
    "budget": "delete",
    "checkpoint": "delete",
}
_WITHOUT_SHOW = ("user", "group", "token", "secret")
_OF_KINDS = ("get", "describe", "delete", "edit")

_IN_GROUP = {
    "apply": ("submit", "create"),
    "cancel": ("kill",),
    "create": ("submit", "add", "set"),
    "delete": ("kill", "remove"),
    "describe": ("show",),
    "get": ("show", "list"),
    "info": ("show",),
    "inspect": ("show",),
    "log": ("logs",),
    "ls": ("list",),
    "promote": ("update promote",),
    "ps": ("list",),
    "revert": ("undo",),
    "rm": ("kill", "remove", "delete"),
    "rollout": ("update",),
    "run": ("submit",),
    "start": ("submit", "restart"),
    "status": ("show",),
    "stop": ("kill",),
    "validate": ("check", "verify"),
}
"""What other systems call a command of a group; the first that a group has is meant."""

DANGEROUS = frozenset(
    (
        *("adopt", "delete", "down", "drain", "freeze", "import", "kill", "logout", "remove", "restart"),
        *("recover", "revoke", "rollback", "rotate-authority", "scale", "taint", "undo", "unseal"),
    )
)
"""Commands that take something down or away."""

_LIKE, _VERY_LIKE = 0.6, 0.85
_FILES = (".yaml", ".yml", ".json", ".jsonnet")


def same_command(words: Sequence[str]) -> list[str] | None:
    """Return our words for a command that has another name here as well; None where it has none."""
    if words[0] == "help":
        return [*(same_command(words[1:]) or words[1:]), "--help"] if len(words) > 1 else ["--help"]
    if words[0] == "version" and len(words) > 1:
        return None
    return [*SAME[words[0]], *words[1:]] if words[0] in SAME else None


def meant_at_top(words: Sequence[str]) -> str:
    """Return what a word and its arguments mean here; "" where nobody knows."""
    word, rest = words[0], list(words[1:])
    if word == "rollout" and rest and rest[0] not in _GROUPS[word]:
        rest = ["status", *rest]  # a job that is named alone
    if word in _GROUPS:
        return _of_group(_GROUPS[word], rest)
    if word in _OF_KINDS:
        return _of_kind(word, rest)
    if word in _FOR_FILES:
        return submitted(rest)
    match word:
        case "attach" if rest:
            return _joined("task exec -it", [*rest, "--", "sh"])
        case "scale":
            return _scale(rest)
        case "start":
            return _joined("job restart", rest) if rest else "up"
        case "taint":
            return _taint(rest)
        case "top":
            return _top(rest)
    return _joined(_AT_TOP[word], rest) if word in _AT_TOP else ""


def submitted(rest: Sequence[str]) -> str:
    """Return how the files among some words are submitted."""
    return _joined("job submit", [each for each in rest if each.endswith(_FILES)] or ["FILE"])


def meant_in_group(words: Sequence[str], commands: Iterable[str]) -> str:
    """Return what the word means in a group with these commands, with the other words."""
    known = [*commands, *_IN_GROUP]
    near = get_close_matches(words[0], known, 3, _LIKE)
    word = next((each for each in near if _is_misspelt(words[0], each)), "")
    meant = next((ours for ours in _IN_GROUP.get(word, ()) if ours.split()[0] in commands), "")
    if word != words[0] and meant in DANGEROUS:
        return ""
    return _joined(meant, words[1:]) if meant else ""


def without_foreign_options(command: Any, meant: str) -> str:
    """Return words for a group or a command of click without the options that it does not know, which are
    those of another system. The word after one that has no ``=`` may be its value, and goes with it."""
    words = shlex.split(meant)
    kept: list[str] = []
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words[0]]
        kept.append(words.pop(0))
    known = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
    while words and words[0] != "--":
        word = words.pop(0)
        option = known.get(word.partition("=")[0]) or (word[1:2] != "-" and known.get(word[:2]))
        if option or word == "-" or not word.startswith("-"):
            kept.append(word)
            if word in known and not getattr(option, "is_flag", True):
                kept += words[:1]
                del words[:1]
        elif "=" not in word and words and not words[0].startswith("-"):
            del words[0]
    return shlex.join([*kept, *words])


def no_such_command(path: str, words: Sequence[str], commands: Iterable[str], meant: str) -> str:
    """Return what to say of a word that is no command of the group at ``path``."""
    said = f"No such command '{safe(words[0])}'."
    if meant:
        return f"{said} Did you mean '{path} {safe(meant)}'?"
    near = like(words[0], commands)
    return f"{said} Did you mean {', '.join(map(repr, near))}?" if near else said


def like(word: str, commands: Iterable[str]) -> list[str]:
    """Return the commands that a misspelt word may be, the likeliest first."""
    return [
        command
        for command in get_close_matches(word, list(commands), 3, _LIKE)
        if command not in DANGEROUS or _is_misspelt(word, command)
    ]


def _is_misspelt(word: str, command: str) -> bool:
    return sorted(word) == sorted(command) or SequenceMatcher(None, word, command).ratio() >= _VERY_LIKE


def _of_group(group: dict[str, str], rest: list[str]) -> str:
    """Return what a command of a group of others means, of what is named; "" where there is none like it."""
    verb = rest[0] if rest and not rest[0].startswith("-") else ""
    ours = group.get(verb, "")
    if verb == "exec":
        return _joined(ours, rest[1:] or ["TASK", "--", "COMMAND"])
    names = _names(rest[1:])
    if ours.endswith(" list") or not verb or not ours:
        return ours
    if not names and ours.endswith(" show"):
        return f"{ours.removesuffix(' show')} list"
    return _joined(ours, names or [_PLACEHOLDERS[ours.split()[0]]])


def _names(words: Sequence[str]) -> list[str]:
    """Return the names among some words, without their kinds and without options."""
    return [name for each in words if not each.startswith("-") and (name := _bare(each))]


def _scale(rest: list[str]) -> str:
    """Return what ``scale deploy web --replicas=3`` means."""
    counts = [each.removeprefix("--replicas=") for each in rest if each.startswith("--replicas=")]
    words = _names(rest)
    counts += [each for each in words if each.isdecimal()]
    names = [each for each in words if not each.isdecimal()]
    return _joined("job scale", [*(names or ["JOB"])[:1], *(counts or ["N"])[:1]])


def _taint(rest: list[str]) -> str:
    """Return what ``taint nodes m1 a=b:NoSchedule`` means, or with a minus at its end."""
    is_theirs = bool(rest) and _kind(rest[0].partition("/")[0]) == "machine"
    if not is_theirs:
        return _joined("machine taint", rest or ["MACHINE", "KEY"])
    names = _names(rest)
    machine, taint = names[0] if names else "MACHINE", names[1] if len(names) > 1 else "KEY"
    mark, _, effect = taint.removesuffix("-").partition(":")
    if taint.endswith("-"):
        return _joined("machine untaint", [machine, mark.partition("=")[0]])
    effects = ["--effect", _EFFECTS[effect]] if effect in _EFFECTS else []
    return _joined("machine taint", [machine, mark, *effects])


def _top(rest: list[str]) -> str:
    """Return what ``top nodes`` means: a list, or one of them where it is named."""
    noun = _kind(rest[0]) if rest else None
    if noun not in ("task", "machine"):
        return "dashboard"
    names = _names(rest[1:])
    if names:
        return _joined(f"{noun} show", names[:1])
    return "task list --sort -cpu" if noun == "task" else "machine list"


def _of_kind(verb: str, rest: list[str]) -> str:
    """Return what ``get pods`` or ``delete job web`` means: our noun, our verb, the names."""
    if not rest or rest[0].startswith("-"):
        return {"get": "job list", "describe": "job show", "delete": "job kill", "edit": "job edit"}[verb]
    kind, slash, name = rest[0].partition("/")
    noun = _kind(kind)
    if noun is None and kind.lower() in ("events", "event", "ev"):
        return _joined("events", rest[1:])
    names = ([name] if slash and noun else []) + rest[1:]
    if noun is None:  # the name of a job itself, as of a task with its index
        noun, names = ("task" if rest[0].rpartition("/")[2].isdecimal() else "job"), rest
    has_names = bool(names) and not names[0].startswith("-")
    if verb == "delete":
        ours = _ENDS.get(noun, "remove")
    elif verb == "edit":
        ours = "edit" if noun == "job" else "show"
    else:
        ours = "show" if has_names or verb == "describe" else "list"
    if ours == "show" and noun in _WITHOUT_SHOW:
        ours, names = "list", [each for each in names if each.startswith("-")]
    return _joined(f"{noun} {ours}", names)


def _kind(word: str) -> str | None:
    """Return our noun for a kind, in the singular or the plural."""
    word = word.lower()
    for ending in ("", "s", "es"):
        if word.endswith(ending) and (noun := _KINDS.get(word[: len(word) - len(ending)])):
            return noun
    return None


def _bare(name: str) -> str:
    """Return a name without the kind in front of it: ``deployment/web`` is web; "" for a kind alone."""
    kind, slash, rest = name.partition("/")
    if _kind(kind):
        return rest
    return name if slash or kind else ""


def _joined(command: str, words: Sequence[str]) -> str:
    return " ".join([command, *map(shlex.quote, words)])
