# SPDX-License-Identifier: LGPL-3.0-or-later
"""End of the test personalities kvs and job: let jobs end, report modules that the script left behind, remove the modules."""

import subprocess
import sys

PERSONALITY = {
    "config", "connector-local", "groups", "overlay", "rexec", "content", "content-sqlite", "heartbeat", "kvs", "kvs-watch",
    "resource", "job-manager", "job-ingest", "job-info", "job-list", "job-exec", "sched-simple",
}  # fmt: skip


def flux(*words):
    return subprocess.run(
        ["flux", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout


def setup(context):
    if flux("getattr", "rank").strip() == "0":
        loaded = [line.split()[0] for line in flux("module", "list").splitlines()[1:]]
        if "job-manager" in loaded and "sched-simple" in loaded:
            flux("queue", "stop", "--all")
            flux("cancel", "--all", "--states=RUN", "--quiet")
            flux("queue", "idle", "--quiet")
        left = sorted(set(loaded) - PERSONALITY)
        if left:
            sys.exit(f"the script left modules behind: {' '.join(left)}: remove what it loads")
    context.remove_modules()
