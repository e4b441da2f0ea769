"""``.dependency-after``: the schemes after, afterany, afterok and afternotok (RFC 26)."""

from flux.jobtap import CURRENT_JOB
from flux_embedded.formats import jobid
from flux_embedded.formats.states import COMPLETED, INACTIVE

#: scheme -> what the description in the eventlog begins with
KINDS = {
    "after": "after-start",
    "afterany": "after-finish",
    "afterok": "after-success",
    "afternotok": "after-failure",
}


def plugin_init(p):
    p.waiting = {}  # antecedent -> [(dependent, kind, description)]
    for scheme in KINDS:
        p.add_handler(f"job.dependency.{scheme}", dependency)
    p.add_handler("job.event.start", started)
    p.add_handler("job.event.clean", ended)
    p.add_handler("plugin.query", query)


def dependency(p, topic, args):
    spec = args["dependency"]
    text = spec.get("value")
    try:
        antecedent = jobid.decode(str(text))
        other = p.job_lookup(antecedent)
    except (ValueError, OSError):
        p.reject_job(f"{spec['scheme']}: {text!r}: no such job")
    if antecedent == args["id"]:
        p.reject_job(f"{spec['scheme']}: a job cannot depend on itself")
    kind = KINDS[spec["scheme"]]
    description = f"{kind}={jobid.f58(antecedent)}"
    try:
        p.dependency_add(CURRENT_JOB, description)
    except FileExistsError:
        return  # named twice, or this is a restart, and it was met before
    entry = (args["id"], kind, description)
    waiting = p.waiting.setdefault(antecedent, [])
    if entry not in waiting:
        waiting.append(entry)
    if p.job_event_posted(antecedent, "start"):
        settle_started(p, antecedent)
    if other["state"] == INACTIVE:
        settle_ended(p, antecedent)
    else:
        p.job_subscribe(antecedent)


def started(p, topic, args):
    settle_started(p, args["id"])


def ended(p, topic, args):
    settle_ended(p, args["id"])


def settle_started(p, antecedent):
    waiting = p.waiting.get(antecedent, [])
    for entry in [entry for entry in waiting if entry[1] == "after-start"]:
        waiting.remove(entry)
        met(p, entry)


def settle_ended(p, antecedent):
    success = p.get_job_result(antecedent) == COMPLETED
    for entry in p.waiting.pop(antecedent, ()):
        kind = entry[1]
        if (
            kind == "after-finish"
            or (kind == "after-success" and success)
            or (kind == "after-failure" and not success)
        ):
            met(p, entry)
        else:
            never(p, entry)


def met(p, entry):
    dependent, _, description = entry
    try:
        p.dependency_remove(dependent, description)
    except OSError:
        pass  # the dependent is gone, or past DEPEND


def never(p, entry):
    dependent, _, description = entry
    try:
        p.raise_exception(
            dependent, "dependency", 0, f"dependency {description} can never be satisfied"
        )
    except OSError:
        pass


def query(p, topic, args):
    waiting = {}
    for antecedent, entries in p.waiting.items():
        waiting[jobid.f58(antecedent)] = [
            {"id": dependent, "description": description} for dependent, _, description in entries
        ]
    return {"dependencies": waiting}
