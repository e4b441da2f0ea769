# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.begin-time``: the scheme of that name; value is seconds since the epoch (RFC 26)."""

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.add_handler("job.dependency.begin-time", dependency)


def dependency(p, topic, args):
    value = args["dependency"].get("value")
    try:
        when = float(value)
        if not 0 <= when < float("inf"):
            raise ValueError
    except (TypeError, ValueError):
        p.reject_job(f"begin-time={value}: expected seconds since the epoch")
    id, description = args["id"], f"begin-time={when:.3f}"
    try:
        p.dependency_add(CURRENT_JOB, description)
    except FileExistsError:
        pass  # a restart: the timer is what is missing

    def begin(handle, watcher, revents, arg):
        try:
            p.dependency_remove(id, description)
        except OSError:
            pass  # canceled meanwhile

    delay = max(0.0, when - p.handle.reactor_now(p.handle.get_reactor()))
    timer = p.handle.timer_watcher_create(delay, begin).start()
    p.job_aux_set(CURRENT_JOB, "timer", timer, lambda watcher: watcher.destroy())
