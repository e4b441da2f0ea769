# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs that exist when it loads come in the order of its argument ``sort``."""


def plugin_init(p):
    p.set_load_sort_order(p.args["sort"])
    p.last = None
    p.add_handler("job.new", new)


def new(p, topic, args):
    sign = {"state": 1, "-state": -1}.get(p.args["sort"])
    if sign:
        here = (sign * args["state"], args["id"])
        if p.last is not None and here < p.last:
            p.handle.log(3, f"load-order: {here} after {p.last}")
            return -1
        p.last = here
    return 0
