"""Job queues: submission, scheduling, status (RFC 33).

Methods ``queue-status``, ``queue-list``, ``queue-enable`` and ``queue-start``. Without configuration
there is one anonymous queue, name None, enabled and started. Named queues are enabled and stopped
when they first appear, and keep their state across later configuration changes.
"""

import errno


class Queue:
    """One queue; `name` is None for the anonymous one."""

    def __init__(self, name, config, started):
        self.name = name
        self.enabled = True
        self.disable_reason = ""
        self.started = started
        self.stop_reason = ""
        self.configure(config)

    def configure(self, config):
        self.requires = list(config.get("requires", ()))
        if "hosts" in config:
            self.requires.append(f"+{self.name}")
        self.parent = config.get("parent")


class Queues:
    """All queues of job manager `jm`."""

    def __init__(self, jm):
        self.jm = jm
        self.table = {None: Queue(None, {}, True)}

    @property
    def are_named(self):
        return None not in self.table

    def configure(self, config):
        """Take the ``queues`` table of a new configuration.

        Raises:
            OSError: EINVAL, and nothing is changed
        """
        named = check_config(config)
        table = {}
        for name, settings in named.items():
            queue = self.table.get(name)
            if queue is None:
                queue = Queue(name, settings, False)
            else:
                queue.configure(settings)
            table[name] = queue
        self.table = table or {None: self.table.get(None) or Queue(None, {}, True)}

    def find(self, name):
        """The queue `name`.

        Raises:
            OSError: EINVAL, there is none
        """
        queue = self.table.get(name)
        if queue is None:
            if name is None:
                raise OSError(errno.EINVAL, "no queue specified")
            raise OSError(errno.EINVAL, f"'{name}' is not a valid queue")
        return queue

    def constraints_of(self, name):
        """Properties that the jobs of a queue are confined to (list of str)."""
        queue = self.find(name)
        return self.find(queue.parent).requires if queue.parent else queue.requires

    def check_submit(self, name):
        """Raise OSError EINVAL if jobs cannot be submitted to queue `name` now."""
        queue = self.find(name)
        if not queue.enabled:
            reason = f": {queue.disable_reason}" if queue.disable_reason else ""
            raise OSError(errno.EINVAL, f"job submission is disabled{reason}")

    def is_started(self, job):
        """Whether `job` may be sent to the scheduler as far as its queue goes."""
        queue = self.table.get(job.queue_name)
        if queue is None:
            # The configuration changed: with no queues defined any more, names do not matter.
            queue = self.table.get(None)
            if queue is None:
                return False
        if queue.parent:
            parent = self.table.get(queue.parent)
            return queue.started and parent is not None and parent.started
        return queue.started

    # -- requests --------------------------------------------------------------------------------

    def status(self, msg):
        """``queue-status``."""
        self.jm.respond(msg, self._status(self.find((msg.body or {}).get("name"))))

    def _status(self, queue):
        status = {"enable": queue.enabled, "start": queue.started}
        if not queue.enabled:
            status["disable_reason"] = queue.disable_reason
        if queue.stop_reason and not queue.started:
            status["stop_reason"] = queue.stop_reason
        if queue.parent:
            status["parent"] = queue.parent
        if queue.started:
            parent = self.table.get(queue.parent) if queue.parent else None
            blocked = None
            if not self.jm.peer.is_ready:
                blocked = "scheduler"
                status["stop_reason"] = "Scheduler is offline"
            elif parent is not None and not parent.started:
                blocked = "parent"
                status["stop_reason"] = f"queue {queue.parent} is stopped"
            if blocked:
                status["start"] = False
                status["blocked"] = blocked
        return status

    def list(self, msg):
        """``queue-list``."""
        self.jm.respond(msg, {"queues": [name for name in self.table if name is not None]})

    def enable(self, msg):
        """``queue-enable``: {enable, name?, all?, reason?}."""
        body = msg.body
        value = _flag(body, "enable")
        for queue in self._targets(body, "enable"):
            queue.enabled = value
            queue.disable_reason = "" if value else body.get("reason") or ""
        self.jm.respond(msg, {})

    def start(self, msg):
        """``queue-start``: {start, name?, all?, reason?, nocheckpoint?}."""
        body = msg.body
        value = _flag(body, "start")
        for queue in self._targets(body, "start"):
            queue.started = value
            queue.stop_reason = "" if value else body.get("reason") or ""
        self.jm.alloc.requeue_eligible(list(self.jm.jobs.values()))
        self.jm.events.send(self.jm.respond, msg, {})

    def _targets(self, body, what):
        name = body.get("name")
        if name is not None:
            return [self.find(name)]
        if self.are_named and not body.get("all"):
            raise OSError(errno.EINVAL, "Named queues are defined. Specify queues or use --all.")
        return list(self.table.values())


def check_config(config):
    """Return the ``queues`` table of a configuration.

    Raises:
        OSError: EINVAL, with a text that names the entry
    """
    for table in ("queues", "policy", "job-manager"):
        if not isinstance(config.get(table, {}), dict):
            raise OSError(errno.EINVAL, f"{table}: expected a table")
    named = config.get("queues", {})
    for name, settings in named.items():
        where = f"queues.{name}"
        if not isinstance(settings, dict):
            raise OSError(errno.EINVAL, f"{where}: expected a table")
        requires = settings.get("requires", [])
        if not isinstance(requires, list) or not all(isinstance(item, str) for item in requires):
            raise OSError(errno.EINVAL, f"{where}.requires: expected an array of property names")
        if "requires" in settings and "hosts" in settings:
            raise OSError(errno.EINVAL, f"{where}: hosts and requires exclude each other")
        parent = settings.get("parent")
        if parent is not None:
            _check_parent(named, name, settings, parent)
    default = (
        config.get("policy", {})
        .get("jobspec", {})
        .get("defaults", {})
        .get("system", {})
        .get("queue")
    )
    if default is not None and default not in named:
        raise OSError(
            errno.EINVAL,
            f"policy.jobspec.defaults.system.queue: default queue '{default}' must be in [queues] table",
        )
    return named


def _check_parent(named, name, settings, parent):
    where = f"queues.{name}.parent"
    if parent not in named or not isinstance(named[parent], dict):
        raise OSError(errno.EINVAL, f"{where}: '{parent}' is not a queue")
    if "parent" in named[parent]:
        raise OSError(
            errno.EINVAL, f"{where}: '{parent}' has a parent itself; only one level is allowed"
        )
    for key in ("hosts", "requires"):
        if key in settings:
            raise OSError(
                errno.EINVAL,
                f"queues.{name}.{key}: a queue with a parent has its parent's resources",
            )


def _flag(body, key):
    value = body.get(key)
    if type(value) is not bool:
        raise OSError(errno.EPROTO, f"{key} must be true or false")
    return value
