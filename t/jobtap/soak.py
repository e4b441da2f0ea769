# SPDX-License-Identifier: LGPL-3.0-or-later
"""Makes something of everything for each job, and says how much Python holds on to."""

import gc
import sys

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.add_handler("job.new", new)
    p.add_handler("job.event.*", lambda p, topic, args: args["entry"] and None)
    p.add_handler("job.state.run", run)
    p.add_handler("plugin.query", query)


def new(p, topic, args):
    p.job_subscribe(CURRENT_JOB)
    p.job_aux_set(CURRENT_JOB, "jobspec", args["jobspec"], lambda value: None)
    p.kept = args


def run(p, topic, args):
    id = args["id"]
    p.prolog_start("soak")

    def finish(handle, watcher, revents, unused):
        p.handle.rpc("kvs.ping", {"seq": 1, "pad": ""}).then(done, id)

    def done(future, id):
        future.get()
        p.prolog_finish(id, "soak", 0)

    p.handle.timer_watcher_create(0.0, finish).start()


def query(p, topic, args):
    if "_flux_jobtap_values" in sys.modules:
        # Jobspecs that were read are kept for the next reader, up to a number of them.
        sys.modules["_flux_jobtap_values"].forget_jobspecs()
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return {"objects": len(gc.get_objects()), "blocks": sys.getallocatedblocks(), "pages": pages}
