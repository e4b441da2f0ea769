# SPDX-License-Identifier: LGPL-3.0-or-later
"""The dependency scheme ``file``: a job waits until a file exists.

    flux submit --dependency=file:/data/ready ...

The file must be on a file system that the job manager can read. The plugin looks for it every
`period` seconds (argument; default: 1).
"""

import os

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.waiting = {}  # job -> set of paths
    p.add_handler("job.dependency.file", dependency)
    p.add_handler("job.state.inactive", inactive)
    period = p.args.get("period", 1.0)
    p.timer = p.handle.timer_watcher_create(period, lambda *args: look(p), repeat=period)
    p.timer.start()


def dependency(p, topic, args):
    path = args["dependency"].get("value")
    if not isinstance(path, str) or not os.path.isabs(path):
        p.reject_job(f"file:{path}: expected an absolute path")
    try:
        p.dependency_add(CURRENT_JOB, f"file={path}")
    except FileExistsError:
        return  # the plugin was loaded again, and the file had been found before
    p.waiting.setdefault(args["id"], set()).add(path)


def inactive(p, topic, args):
    p.waiting.pop(args["id"], None)


def look(p):
    for id, paths in list(p.waiting.items()):
        for path in sorted(paths):
            if os.path.exists(path):
                paths.discard(path)
                try:
                    p.dependency_remove(id, f"file={path}")
                except OSError:
                    pass  # the job was canceled meanwhile
        if not paths:
            p.waiting.pop(id, None)
