# SPDX-License-Identifier: LGPL-3.0-or-later
"""The form of the tables ``[policy]`` and ``[queues]`` (RFC 33).

An unknown key is an error: a misspelt limit would limit nothing.

A queue with a ``parent`` is *virtual*: another name to submit under, with the resources of its parent and a policy of its own. Keys
missing from its policy are looked up in its parent's, then in ``[policy]``. A parent has no parent.
"""

import errno

from flux_engine.formats import form, fsd, rset


def _limit(value):
    form.check(value, int, "a limit")
    if value < -1:
        raise ValueError(f"{value}: expected a count, or -1 for no limit")


def _property(name):
    rset.check_property(name)
    if " " in name or "\t" in name:
        raise ValueError(f"property {name!r}: a name has no blanks")


_SIZES = form.Table.fromkeys(("nnodes?", "ncores?", "ngpus?"), _limit)
_POLICY = form.Table(
    {
        "jobspec?": form.Table(
            {
                "defaults?": form.Table(
                    {"system?": form.Table({"duration?": fsd.parse, "queue?": str})}
                )
            }
        ),
        "limits?": form.Table(
            {"job-size?": form.Table({"min?": _SIZES, "max?": _SIZES}), "duration?": fsd.parse}
        ),
        "access?": form.Table({"allow-user?": [str], "allow-group?": [str]}),
        "scheduler?": object,
    }
)
_QUEUE = form.Table({"policy?": _POLICY, "requires?": [_property], "parent?": str})


def validate(config):
    """Check both tables. OSError EINVAL: the table and the key."""
    policy = form.check_table(config.get("policy"), _POLICY, "policy")
    queues = form.check_table(config.get("queues"), dict, "queues")
    for name, entry in queues.items():
        form.check_table(entry, _QUEUE, f"queues.{name}")
    for name, entry in queues.items():
        wrong = _wrong_queue(queues, name, entry)
        if wrong:
            raise OSError(errno.EINVAL, f"configuration: queues.{name}: {wrong}")
    default = _default_queue(policy)
    if default is not None and default not in queues:
        text = f"configuration: policy: the default queue {default} is not in queues"
        raise OSError(errno.EINVAL, text)


def _default_queue(policy):
    return policy.get("jobspec", {}).get("defaults", {}).get("system", {}).get("queue")


def _wrong_queue(queues, name, entry):
    """The error in a queue that has the right form, or None."""
    policy, parent = entry.get("policy", {}), entry.get("parent")
    if _default_queue(policy) is not None:
        return "policy must not define a default queue"
    if parent is None:
        return None
    if "scheduler" in policy or "requires" in entry:
        return "a virtual queue must not set 'requires' or 'policy.scheduler'"
    if parent == name:
        return "parent queue is itself"
    if parent not in queues:
        return f"parent queue '{parent}' is not configured"
    if "parent" in queues[parent]:
        return f"parent queue '{parent}' is itself a virtual queue"
    return None
