# SPDX-License-Identifier: LGPL-3.0-or-later
"""A prolog and an epilog of a tenth of a second each; with prolog-exception=1 the prolog fails."""

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.set_name("perilog-test")
    p.add_handler("job.state.run", run)
    p.add_handler("job.state.cleanup", cleanup)


def later(p, finish, id, name):
    p.handle.timer_watcher_create(0.1, lambda *args: finish(id, name, 0)).start()


def run(p, topic, args):
    names = ["test"] + [f"test-{i}" for i in range(1, p.args.get("prolog-count", 1))]
    for name in names:
        p.prolog_start(name)
    if p.args.get("prolog-exception"):
        p.raise_exception(CURRENT_JOB, "test", 0, "prolog test exception")
        for name in names:
            p.prolog_finish(args["id"], name, 0)
        return
    for name in names:
        later(p, p.prolog_finish, args["id"], name)


def cleanup(p, topic, args):
    p.epilog_start("test")
    later(p, p.epilog_finish, args["id"], "test")
