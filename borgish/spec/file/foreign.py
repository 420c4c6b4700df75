"""Files of other systems, recognised as such: one message with what corresponds to what, instead of a mistake
for each of their fields.
"""

import json
import re
from collections.abc import Iterable

from borgish.spec.file.document import Mapping, Node, Scalar, Sequence, child_of
from borgish.spec.file.kinds import text_at

_NAMED_MAX = 3  # services of a compose file for which a job file is sketched
_TEXT_MAX, _TEXTS_MAX = 100, 8  # a hint is to be read at a glance
_FORMAT = "borgctl schema prints what a job file may hold"
_REWRITE = f"rewrite it in YAML; {_FORMAT}"
_NOMAD_JOB = re.compile(r'\s*(?:(?:#|//)[^\n]*\n\s*)*(variable|locals|job)\s*("[^"\n]*"\s*)?\{')
_HELM_TEMPLATE = re.compile(r"\{\{-?\s*(\.Values|\.Release|\.Chart|include\s|template\s|define\s)")
_STACK_FIELDS = ("deploy", "configs", "secrets")  # of a service, which docker stack deploy reads


def foreign_text(text: str) -> tuple[str, str] | None:
    """Return what a text is that need not be YAML at all, and what to do with it; None for anything else."""
    if _HELM_TEMPLATE.search(text):
        hint = f"`helm template` shows what it becomes; each workload of that is a job of its own; {_FORMAT}"
        return "a template of a Helm chart", hint
    return ("a Nomad job file", _REWRITE) if _NOMAD_JOB.match(text) else None


def foreign(roots: tuple[Node, ...]) -> tuple[Node, str, str] | None:
    """Return which document of a text is of another system first, what the text is then, and how its
    essentials are written as a job file; None where there is none.
    """
    strange = [(root, found) for root in roots if (found := _one(root))]
    if not strange:
        return None
    root, (what, hint) = strange[0]
    manifests = [node for each, _ in strange for node in _manifests(each)]
    kinds = list(dict.fromkeys(kind[:40] for node in manifests if (kind := text_at(node, "kind"))))
    if len(manifests) > 1 and kinds:
        more = ", ..." * (len(kinds) > _NAMED_MAX)
        what = f"a file of {len(manifests)} Kubernetes manifests ({', '.join(kinds[:_NAMED_MAX])}{more})"
        hints = [_kubernetes(node)[1] for node in manifests if _is_workload(node)]
        hint = f"the first workload, {hints[0]}" if hints else hint
    return root, what, hint


def _one(root: Node) -> tuple[str, str] | None:
    if isinstance(root, Scalar):
        return ("a Nomad job file", _REWRITE) if root.plain and _NOMAD_JOB.match(root.text) else None
    if not isinstance(root, Mapping) or child_of(root, "run"):
        return None
    kind, services = text_at(root, "kind"), child_of(root, "services")
    keys = {key.text for key, _ in root.items}
    if ("apiVersion" in keys and kind == "Kustomization") or keys & _KUSTOMIZE:
        hint = f"`kubectl kustomize` shows what it becomes; each workload of that is a job; {_FORMAT}"
        return "a kustomization of Kubernetes", hint
    if kind and "apiVersion" in keys:
        return _kubernetes(root)
    if {"apiVersion", "name", "version"} <= keys:
        return "the Chart.yaml of a Helm chart", f"each workload of the chart is a job of its own; {_FORMAT}"
    if isinstance(child_of(root, "image"), Mapping) and keys & {"replicaCount", "ingress", "serviceAccount"}:
        return "the values of a Helm chart", f"each workload of the chart is a job of its own; {_FORMAT}"
    if isinstance(child_of(root, "Job", "TaskGroups") or child_of(root, "TaskGroups"), Sequence):
        return "a Nomad job file", _REWRITE
    if isinstance(services, Mapping):
        some = services.items[:_NAMED_MAX]
        jobs = [_job(name.text, "", service, _after(service)) for name, service in some]
        hint = f"each service is a job of its own, like {' and '.join(jobs)}; {_FORMAT}"
        is_stack = any(child_of(it, field) for _, it in services.items for field in _STACK_FIELDS)
        return ("a Docker stack (a Compose file)" if is_stack else "a Docker Compose file"), hint
    return None


_KUSTOMIZE = {"patchesStrategicMerge", "patchesJson6902", "configMapGenerator", "namePrefix", "commonLabels"}


def _manifests(root: Node) -> tuple[Node, ...]:
    """Return the manifests of Kubernetes that a document is, of which a List holds many."""
    if not child_of(root, "apiVersion"):
        return ()
    items = child_of(root, "items")
    if text_at(root, "kind").endswith("List") and isinstance(items, Sequence):
        return items.items
    return (root,)


_CRON_JOB = "CronJob"
_WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "Pod", _CRON_JOB}
_SET_BY_COMMAND = {"PodDisruptionBudget": "budget", "ResourceQuota": "quota"}
"""What is no file of borgish, and has a command."""


def _is_workload(root: Node) -> bool:
    return text_at(root, "kind") in _WORKLOADS or _container(root) is not None


def _kubernetes(root: Node) -> tuple[str, str]:
    kind = text_at(root, "kind")
    what = f"a Kubernetes {kind[:40]}"
    if command := _SET_BY_COMMAND.get(kind):
        return what, f"`borgctl {command} set` does what it is for; {_FORMAT}"
    if not _is_workload(root):
        has = "jobs, cron jobs, applications, machines, quotas and budgets"
        return what, f"borgish has {has}, and nothing like this; {_FORMAT}"
    replicas = text_at(root, "spec", "replicas") or text_at(_template(root), "spec", "completions")
    own = _cron_parts(root) if kind == _CRON_JOB else []
    job = _job(text_at(root, "metadata", "name"), replicas, _container(root), own)
    return what, f"as a {'cron job' if own else 'job'} file it begins {job}; {_FORMAT}"


def _cron_parts(root: Node) -> list[str]:
    """Return what a cron job has that a job has not."""
    schedule, zone = text_at(root, "spec", "schedule"), text_at(root, "spec", "timeZone")
    parts = ["kind: cron", f"schedule: {json.dumps(schedule[:_TEXT_MAX] or '30 2 * * mon-fri')}"]
    return [*parts, *([f"time_zone: {json.dumps(zone[:_TEXT_MAX])}"] if zone else [])]


def _template(root: Node) -> Node:
    return child_of(root, "spec", "jobTemplate") or root  # of a CronJob


def _container(root: Node) -> Node | None:
    """Return the first container of a manifest."""
    pod = child_of(_template(root), "spec", "template", "spec") or child_of(root, "spec")
    containers = child_of(pod, "containers")
    return containers.items[0] if isinstance(containers, Sequence) and containers.items else None


def _job(name: str, tasks: str, container: Node | None, own: Iterable[str] = ()) -> str:
    """Return a job file, as a flow mapping, of what a container or a service has in common with one, and of
    some fields more."""
    parts = [f"name: {name[:_TEXT_MAX] or 'NAME'}", *([f"tasks: {tasks}"] if tasks.isdecimal() else []), *own]
    if image := text_at(container, "image")[:_TEXT_MAX]:
        parts.append(f"image: {json.dumps(image)}")
    if opened := _opened(container):
        parts.append(f"container: {{{', '.join(opened)}}}")
    run = [*_words(child_of(container, "command")), *_words(child_of(container, "args"))][:_TEXTS_MAX]
    if run or not image:
        parts.append(f"run: {json.dumps(run or ['PROGRAM'])}")
    return f"{{{', '.join(parts)}}}"


def _opened(container: Node | None) -> list[str]:
    """Return as whom a container or a service runs and what it may, as far as a job file says it, too."""
    context = child_of(container, "securityContext")
    user = text_at(container, "user") or text_at(context, "runAsUser")
    group = text_at(context, "runAsGroup")
    read_only = text_at(container, "read_only") or text_at(context, "readOnlyRootFilesystem")
    added = child_of(container, "cap_add") or child_of(context, "capabilities", "add")
    mounts = [mount for text in _words(child_of(container, "volumes")) if (mount := _mount(text))]
    parts = [f"user: {json.dumps(user[:_TEXT_MAX] + f':{group[:_TEXT_MAX]}' * bool(group))}"] * bool(user)
    parts += ["read_only: true"] * (read_only == "true")
    parts += [f"capabilities: {json.dumps(_words(added))}"] * bool(_words(added))
    return [*parts, *([f"mounts: [{', '.join(mounts)}]"] if mounts else [])]


def _mount(volume: str) -> str:
    """Return the mount that a volume of Compose stands for, /srv/data:/data:ro; "" for another kind."""
    source, _, rest = volume.partition(":")
    target, _, mode = rest.partition(":")
    if not (source.startswith("/") and target.startswith("/")):
        return ""
    write = "" if "ro" in mode.split(",") else ", write: true"
    return f"{{from: {json.dumps(source)}, to: {json.dumps(target)}{write}}}"


def _after(service: Node) -> list[str]:
    """Return which jobs a service of a compose file starts after."""
    others = child_of(service, "depends_on")
    if isinstance(others, Sequence):
        names = [(name, "") for name in _words(others)]
    elif isinstance(others, Mapping):
        names = [(key.text, text_at(node, "condition")) for key, node in others.items]
    else:
        return []
    entries = [
        _entry(name[:_TEXT_MAX], _CONDITIONS.get(condition, "up")) for name, condition in names[:_NAMED_MAX]
    ]
    return [f"after: [{', '.join(entries)}]"] if entries else []


_CONDITIONS = {"service_healthy": "healthy", "service_completed_successfully": "finished"}


def _entry(name: str, until: str) -> str:
    return f"{{job: {name}, until: {until}}}"


def _words(node: Node | None) -> list[str]:
    if isinstance(node, Scalar):
        return node.text[:_TEXT_MAX].split()
    items = node.items[:_TEXTS_MAX] if isinstance(node, Sequence) else ()
    return [item.text[:_TEXT_MAX] for item in items if isinstance(item, Scalar)]
