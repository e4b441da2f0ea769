"""What an instance does at its start, when nothing else is said: load its modules."""

MODULES = [
    "content",
    "content-sqlite",
    "heartbeat",
    "kvs",
    "kvs-watch",
    "resource",
    "job-manager",
    "job-info",
    "job-list",
    "job-ingest",
    "job-exec",
    "cron",
    # Whichever module the configuration or the priorities choose.
    "sched",
]


def setup(context):
    context.load_modules(MODULES)
