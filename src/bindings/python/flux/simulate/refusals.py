# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs refused by a policy although they fit the machine."""

from flux.resource import InfeasibleRequest
from flux.resource.Rv1Pool import Rv1Pool
from flux.simulate.engine.manager import default_queue, request_of
from flux.simulate.results.outcome import REJECTED
from flux.simulate.site_check import tables_of
from flux_engine.job_manager.queues import Queues
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import ResourceState


def refused(outcome, settings):
    """Return the indices of jobs that were refused although they fit the empty machine; none if something else may refuse
    jobs: a site's rules, a jobtap plugin, or attributes of a job's own jobspec."""
    workload = outcome.workload
    config = {"queues": workload.queues, **settings.config}
    if REJECTED not in outcome.how or settings.jobtap or tables_of(config):
        return []
    state = ResourceState(0)
    state.define(Inventory(workload.machine.R), config)
    pool = Rv1Pool(state.view.R, amounts=config.get("amounts"))
    queues = Queues()
    if config["queues"]:
        queues.configure({"queues": config["queues"]})
    known = {}
    found = []
    for index, job in enumerate(workload.jobs):
        extra = job.extra or {}
        if outcome.how[index] != REJECTED or job.shape is None or "jobspec" in extra:
            continue
        queue = (job.queue or default_queue(config)) if queues.are_named else None
        if queue not in queues.table:
            continue  # job-ingest refuses it
        key = (job.shape, queue, repr((extra.get("constraints"), extra.get("memory"))))
        if key not in known:
            known[key] = _has_room(pool, job, queue, queues)
        if known[key]:
            found.append(index)
    return found


def _has_room(pool, job, queue, queues):
    try:
        pool.check_feasibility(pool.parse_resource_request(request_of(job, queue, queues)))
    except (InfeasibleRequest, ValueError):
        return False
    return True
