"""Files of other systems, recognised as such: one message with what corresponds to what, instead of a mistake
for each of their fields.
"""

import json
import re

import msgspec

from borgish.spec.document import Mapping, Node, Scalar, Sequence

_NAMED_MAX = 3  # services of a compose file for which a job file is sketched
_TEXT_MAX, _TEXTS_MAX = 100, 8  # a hint is to be read at a glance
_FORMAT = "borgctl schema prints what a job file may hold"
_NOMAD_JOB = re.compile(r'\s*(variable|locals|job)\s*("[^"]*"\s*)?\{')


class Foreign(msgspec.Struct, frozen=True):
    """What the file is, and how its essentials are written as a job file."""

    what: str
    hint: str


def foreign_file(root: Node) -> Foreign | None:
    """Return what a file of Kubernetes, Docker Compose or Nomad is; None for anything else."""
    if isinstance(root, Scalar):
        is_nomad = root.plain and _NOMAD_JOB.match(root.text)
        return Foreign("a Nomad job file", f"write it anew in YAML; {_FORMAT}") if is_nomad else None
    kind, services = _text(root, "kind"), _at(root, "services")
    if kind and _at(root, "apiVersion"):
        return _kubernetes(root, kind)
    if isinstance(services, Mapping) and not _at(root, "run"):
        jobs = [_job(name.text, "", service) for name, service in services.items[:_NAMED_MAX]]
        return Foreign(
            "a Docker Compose file",
            f"each service is a job file of its own, like {' and '.join(jobs)}; {_FORMAT}",
        )
    return None


def _kubernetes(root: Node, kind: str) -> Foreign:
    what = f"a Kubernetes {kind[:40]}"
    template = _at(root, "spec", "jobTemplate") or root  # of a CronJob
    pod = _at(template, "spec", "template", "spec") or _at(root, "spec")
    containers = _at(pod, "containers")
    if not isinstance(containers, Sequence) or not containers.items:
        return Foreign(what, f"borgish has jobs, machines and quotas, and nothing of this kind; {_FORMAT}")
    replicas = _text(root, "spec", "replicas") or _text(template, "spec", "completions")
    job = _job(_text(root, "metadata", "name"), replicas, containers.items[0])
    return Foreign(what, f"as a job file it begins {job}; {_FORMAT}")


def _job(name: str, tasks: str, container: Node) -> str:
    """Return a job file, as a flow mapping, of what a container or a service has in common with one."""
    parts = [f"name: {name[:_TEXT_MAX] or 'NAME'}", *([f"tasks: {tasks}"] if tasks.isdecimal() else [])]
    if image := _text(container, "image")[:_TEXT_MAX]:
        parts.append(f"image: {json.dumps(image)}")
    run = [*_texts(_at(container, "command")), *_texts(_at(container, "args"))][:_TEXTS_MAX]
    if run or not image:
        parts.append(f"run: {json.dumps(run or ['PROGRAM'])}")
    return f"{{{', '.join(parts)}}}"


def _at(node: Node | None, *path: str) -> Node | None:
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = next((child for name, child in node.items if name.text == key), None)
    return node


def _text(node: Node | None, *path: str) -> str:
    found = _at(node, *path)
    return found.text if isinstance(found, Scalar) and not found.is_null else ""


def _texts(node: Node | None) -> list[str]:
    if isinstance(node, Scalar):
        return node.text[:_TEXT_MAX].split()
    items = node.items[:_TEXTS_MAX] if isinstance(node, Sequence) else ()
    return [item.text[:_TEXT_MAX] for item in items if isinstance(item, Scalar)]
