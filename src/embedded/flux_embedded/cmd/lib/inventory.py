"""The instance's resources by state, for ``flux resource`` and ``flux queue``."""

import errno
import os

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats.rset import RSet


class SchedStatus:
    """Resources as free, allocated, down, up and all.

    Args:
        answer: response of ``resource.sched-status``.
    """

    def __init__(self, answer):
        self.all, self.down, self.allocated = (
            RSet(answer.get(name)) for name in ("all", "down", "allocated")
        )
        for part in (self.down, self.allocated):
            part.properties = {
                name: members & set(part.have) for name, members in self.all.properties.items()
            }
        self.up = self.all.diff(self.down)
        self.free = self.up.diff(self.allocated)

    STATES = ("free", "allocated", "down", "up", "all")

    def get(self, state):
        return getattr(self, state)


def sched_status(client):
    """Ask for :class:`SchedStatus`.

    Raises:
        OSError: nobody answers
    """
    topic = os.environ.get("FLUX_RESOURCE_LIST_RPC", "resource.sched-status")
    try:
        return SchedStatus(client.rpc(topic))
    except OSError as exc:
        # without the resource service a scheduler may know
        if exc.errno != errno.ENOSYS or topic == "sched.resource-status":
            raise
    return SchedStatus(client.rpc("sched.resource-status"))


class QueueMap:
    """Which queues a rank belongs to, from the configuration."""

    def __init__(self, config):
        self.requires = {}
        for name, table in (config.get("queues") or {}).items():
            requires = list(table.get("requires", ()))
            parent = table.get("parent")
            owner = config["queues"].get(parent, {}) if parent else table
            requires = list(owner.get("requires", ())) if parent else requires
            if "hosts" in owner:
                requires.append(f"+{parent or name}")
            self.requires[name] = set(requires)

    def __bool__(self):
        return bool(self.requires)

    def of(self, properties):
        """The queues of a rank with these properties."""
        have = set(properties)
        return tuple(name for name, needed in self.requires.items() if needed <= have)

    def select(self, rset, name):
        """The part of rset that belongs to a queue.

        Raises:
            ValueError: there is no such queue
        """
        if name not in self.requires:
            raise ValueError(f"{name}: no such queue")
        return rset.select(
            {r for r in rset.have if self.requires[name] <= set(rset.rank_properties(r))}
        )


def narrow(rset, args, client, everything):
    """rset cut down by ``--include`` and ``--queue``.

    Args:
        everything: the RSet that targets are looked for in

    Raises:
        CommandError: one of them is malformed, or there is no such queue
    """
    if args.include:
        try:
            rset = rset.select(everything.find(args.include))
        except ValueError as exc:
            raise CommandError(f"--include: {exc}") from None
    if args.queue:
        queues = QueueMap(client.rpc("config.get") or {})
        ranks = set()
        for name in (name for text in args.queue for name in text.split(",")):
            try:
                ranks.update(queues.select(rset, name).have)
            except ValueError as exc:
                raise CommandError(f"--queue: {exc}") from None
        rset = rset.select(ranks)
    return rset
