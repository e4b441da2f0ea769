# SPDX-License-Identifier: LGPL-3.0-or-later
"""Compute the priority from the bank that a job is charged to: ``urgency * 1000 + weight of the
bank``.

The weights are unknown when the plugin is loaded. Jobs wait in PRIORITY until a request sets them:

    h.rpc("job-manager.priority-bank.weights", {"weights": {"physics": 300, "biology": 200}})

Jobs of a bank without a weight keep waiting. ``flux jobtap query priority-bank.py`` shows the
weights.
"""

import errno

from flux.constants import FLUX_ROLE_OWNER


def plugin_init(p):
    p.weights = {}
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.priority.get", priority)
    p.add_handler("plugin.query", lambda p, topic, args: {"weights": p.weights})
    p.service_register_ex("weights", FLUX_ROLE_OWNER, set_weights)


def priority(p, topic, args):
    bank = args["jobspec"]["attributes"]["system"].get("bank")
    weight = p.weights.get(bank)
    if weight is None:
        return p.priority_unavail()
    return {"priority": args["urgency"] * 1000 + weight}


def set_weights(p, msg):
    weights = msg.payload.get("weights")
    if not isinstance(weights, dict) or not all(
        type(w) is int and 0 <= w < 1000 for w in weights.values()
    ):
        raise OSError(errno.EINVAL, "weights: expected an object of integers from 0 to 999")
    p.weights = weights
    p.reprioritize_all()
    p.handle.respond(msg)
