# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux start``: its options, and the start of an instance with them."""

import argparse
import os

from flux_embedded.broker.attrs import AttrTable
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import config, hostlist, jobid, rset
from flux_engine.formats.rset import RSet
from flux_engine.kernel.future import RPC_NORESPONSE
from flux_engine.kernel.link import connect

MAX_SIZE = 1 << 20


def make_parser():
    parser = Parser("flux-start", status=1)
    several = {"action": "append", "default": []}
    parser.option("-c --config-path=PATH", "configuration: a TOML file or directory", **several)
    parser.option("--conf=KEY=VAL|FILE", "a key of it (VAL is TOML, or text), or a file", **several)
    parser.option("-S --setattr=ATTR=VAL", "a broker attribute", **several)
    parser.option(
        "-o --broker-opts=OPTS",
        "options of the broker, separated by commas: -SATTR=VAL, -cPATH",
        **several,
    )
    parser.option("-s --test-size=N", "play N broker ranks", type=int)
    parser.option("--test-hosts=HOSTLIST", "names of their hosts")
    parser.option("--virtual-time", "run on the virtual clock: jobs are simulated")
    parser.option("command", "run in the instance; default: a shell", nargs=argparse.REMAINDER)
    return parser


def _joined(parser, argv):
    """Return the arguments with ``-o`` and its value joined: argparse accepts no separate value that begins with a hyphen."""
    done, rest = [], list(argv)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        if word in ("-o", "--broker-opts") and rest:
            word = f"--broker-opts={rest.pop(0)}"
        done.append(word)
        if parser.takes_value(word):
            done += rest[:1]
            del rest[:1]
    return done + rest


def parse(argv):
    """The options, with ``size``, ``hosts``, ``config``, ``attrs`` (AttrTable), and ``parent`` made of them."""
    parser = make_parser()
    options = parser.parse_args(_joined(parser, argv))
    for text in options.broker_opts:
        broker = parser.parse_args([word for word in text.split(",") if word])
        if broker.command:
            raise CommandError(f"--broker-opts: unknown option '{broker.command[0]}'")
        options.setattr = options.setattr + broker.setattr
        options.config_path = options.config_path + broker.config_path
    if options.command[:1] == ["--"]:
        del options.command[0]
    options.size = 1 if options.test_size is None else options.test_size
    if not 1 <= options.size <= MAX_SIZE:
        raise CommandError("--test-size argument must be > 0")
    options.hosts = None
    if options.test_hosts is not None:
        options.hosts = hostlist.decode(options.test_hosts)
        if len(options.hosts) != options.size:
            raise CommandError("--test-hosts hostlist has incorrect size")
    options.config = {}
    for read, texts in (
        (config.load_path, options.config_path),
        (config.parse_setting, options.conf),
    ):
        for text in texts:
            options.config = config.merge(options.config, read(text))
    options.attrs = AttrTable()
    for text in options.setattr:
        name, equals, value = text.partition("=")
        options.attrs.set_at_start(name, value if equals else "1")
    if options.config_path:
        options.attrs.define("config.path", ":".join(options.config_path))
    options.parent = None
    return options


def main(argv):
    """Run ``flux start`` with these arguments; returns the exit code."""
    options = parse(argv)
    from flux_embedded.broker.session import Session

    if not _join_job(options, os.environ):
        return 0
    return Session(options).run()


def _join_job(options, environ):
    """Take the resources of the enclosing job, if this is a task of one. Return whether to start an instance.

    One process plays all ranks, so only the first of a job's tasks starts one.

    Raises:
        OSError: the enclosing instance does not return the job's resources
    """
    job, uri = environ.get("FLUX_JOB_ID"), environ.get("FLUX_URI", "")
    if options.test_size is not None or job is None:
        return True
    if environ.get("FLUX_TASK_RANK", "0") != "0":
        return False
    if not job or not uri.startswith("local://"):
        return True
    try:
        options.parent = parent = Parent(uri, job)
    except (OSError, ValueError) as exc:
        raise OSError(5, f"job {job}: no resources from the enclosing instance: {exc}") from None
    options.hosts = rset.hosts(parent.R)
    options.size = len(options.hosts)
    for name, value in (
        ("instance-level", parent.level + 1),
        ("jobid", parent.job),
        ("parent-uri", parent.uri),
    ):
        options.attrs.define(name, value)
    return True


#: Flags of job-info requests (RFC 41): JSON objects, with updates applied.
_CURRENT = 3


class Parent:
    """A connection to the enclosing instance at `uri`, for the job (its id as text) that this process belongs to.

    Its maker gets OSError if it does not answer, ValueError for a wrong id.

    Attributes:
        level (int): the nesting level of the enclosing instance; 0 for one that is not a job itself
        R (dict): the job's, with ranks from 0 on, as the instance in it has them
    """

    def __init__(self, uri, job):
        self.uri = uri
        self.job = job
        self.id = jobid.decode(job)
        self._h = connect(uri)
        self.level = int(self._h.attr_get("instance-level"))
        lookup = {"id": self.id, "keys": ["R"], "flags": _CURRENT}
        R = self._h.rpc_object("job-info.lookup", lookup).body["R"]
        self.R = RSet(R).renumber().to_dict()

    def announce(self, uri):
        """Tell the enclosing instance the URI of the one in the job."""
        memo = {"id": self.id, "memo": {"uri": uri}}
        self._h.rpc_object("job-manager.memo", memo, RPC_NORESPONSE)

    def close(self):
        self._h.disconnect()
