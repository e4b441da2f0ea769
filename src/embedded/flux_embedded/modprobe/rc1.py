"""The default start script of an instance: load its modules."""

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
    # The module that the configuration or the priorities select.
    "sched",
]


def setup(context):
    context.load_modules(MODULES)
