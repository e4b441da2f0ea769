# SPDX-License-Identifier: LGPL-3.0-or-later
"""Completion of jobspecs by the defaults and the constraint of their queue (RFC 33), with flux-core's own frobnicator."""

import copy
import errno

from flux.job.frobnicator.plugins.constraints import apply_constraints
from flux.job.frobnicator.plugins.defaults import DefaultsConfig
from flux.job.Jobspec import Jobspec


def complete(jobspec, queues):
    """A copy of `jobspec`, which was not necessarily validated, completed by the configuration `queues` (flux.queue.QueueConf).

    Raises:
        OSError: EPERM: the queue is refused; EINVAL: an attribute has another type
    """
    attributes = _object(_object(jobspec, "jobspec").get("attributes"), "attributes")
    system = _object(attributes.get("system"), "attributes.system")
    # The environment is large, and not changed.
    own = {
        key: value if key == "environment" else copy.deepcopy(value)
        for key, value in system.items()
    }
    own.setdefault("duration", 0)
    complete = object.__new__(Jobspec)  # it would validate
    complete.jobspec = {**jobspec, "attributes": {**attributes, "system": own}}
    try:
        if queues or queues.policy():
            DefaultsConfig(queues).apply_defaults(complete)
            apply_constraints(queues, complete)
    except ValueError as exc:
        raise OSError(errno.EPERM, str(exc)) from None
    except (AttributeError, TypeError) as exc:
        raise OSError(errno.EINVAL, f"jobspec: {exc}") from None
    return complete.jobspec


def _object(value, name):
    if value is not None and not isinstance(value, dict):
        raise OSError(errno.EINVAL, f"{name}: expected an object")
    return value or {}
