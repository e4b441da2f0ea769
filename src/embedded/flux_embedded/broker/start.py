# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux start``: its options, and the start of an instance with them."""

import getopt
import os
import sys

from flux_embedded.broker.attrs import AttrTable
from flux_engine.formats import config, hostlist, rset

USAGE = """\
Usage: flux-start [OPTIONS] command ...
  -c, --config-path=PATH     Read configuration from TOML file PATH, or all TOML files of directory PATH
      --conf=KEY=VAL|FILE    Set a key of the configuration (VAL is TOML, or a string), or read FILE
  -S, --setattr=ATTR=VAL     Set a broker attribute
  -s, --test-size=N          Play N broker ranks
      --test-hosts=HOSTLIST  Names of their hosts
      --virtual-time         Run on the virtual clock: jobs are simulated
  -h, --help                 Display this message
"""

_LONG = ["config-path=", "conf=", "setattr=", "test-size=", "test-hosts=", "virtual-time", "help"]


class UsageError(Exception):
    """The command line is wrong; the text is printed."""


class StartOptions:
    """The options of an instance.

    Attributes:
        size (int): broker ranks; hosts (list of str or None): the host of each
        config (dict): the configuration
        attrs (AttrTable): attributes set at start
        command (list of str): the command to run; empty for an interactive shell
        virtual_time (bool)
        test (bool): a size was given: the instance does not take over a job's resources
        parent (Parent or None): the instance in which this one is a job
        job_R (dict or None): that job's resources
        rundir_given (bool): the run directory was given by the user, and is kept
    """

    def __init__(self):
        self.size = 1
        self.hosts = None
        self.config = {}
        self.attrs = AttrTable()
        self.command = []
        self.virtual_time = False
        self.test = False
        self.parent = None
        self.job_R = None
        self.rundir_given = False


def parse(argv):
    """Return the StartOptions of a command line.

    Raises:
        UsageError: wrong usage
        config.ConfigError: a configuration cannot be read
    """
    options = StartOptions()
    try:
        pairs, options.command = getopt.getopt(argv, "c:S:s:h", _LONG)
    except getopt.GetoptError as exc:
        raise UsageError(
            f"flux-start: {exc}\nTry `flux-start --help' for more information."
        ) from None
    hosts = None
    paths = []
    for name, value in pairs:
        if name in ("-h", "--help"):
            raise UsageError(None)
        if name in ("-s", "--test-size"):
            options.size = _size(value)
            options.test = True
        elif name == "--test-hosts":
            hosts = value
        elif name in ("-c", "--config-path"):
            paths.append(value)
            _configure(options, config.load_path, value, "--config-path")
        elif name == "--conf":
            _configure(options, config.parse_setting, value, name)
        elif name in ("-S", "--setattr"):
            _set_attribute(options, value)
        elif name == "--virtual-time":
            options.virtual_time = True
    if hosts is not None:
        options.hosts = _hosts(hosts, options.size)
    if paths:
        options.attrs.define("config.path", ":".join(paths))
    return options


def _configure(options, read, value, name):
    """Merge the configuration that an option gives into the others."""
    try:
        options.config = config.merge(options.config, read(value))
    except config.ConfigError as exc:
        raise config.ConfigError(f"{name}: {exc}") from None


def _size(text):
    try:
        size = int(text)
    except ValueError:
        size = 0
    if not 1 <= size <= 1 << 20:
        raise UsageError("flux-start: --test-size argument must be > 0")
    return size


def _hosts(text, size):
    try:
        names = hostlist.decode(text)
    except ValueError as exc:
        raise UsageError(f"flux-start: --test-hosts: {exc}") from None
    if len(names) != size:
        raise UsageError("flux-start: --test-hosts hostlist has incorrect size")
    return names


def _set_attribute(options, text):
    name, equals, value = text.partition("=")
    try:
        options.attrs.set_at_start(name, value if equals else "1")
    except ValueError as exc:
        raise UsageError(f"flux-broker: {exc}") from None
    except OSError as exc:
        raise UsageError(f"flux-broker: {name}: {exc.strerror}") from None
    if name == "rundir":
        options.rundir_given = True


def main(argv):
    """Run ``flux start`` with these arguments; returns the exit code."""
    try:
        options = parse(argv)
    except UsageError as exc:
        if exc.args[0] is None:
            print(USAGE, end="", file=sys.stderr)
            return 0
        print(exc, file=sys.stderr)
        return 1
    except config.ConfigError as exc:
        print(f"flux-start: {exc}", file=sys.stderr)
        return 1
    from flux_embedded.broker.session import Session

    try:
        if not _join_job(options, os.environ):
            return 0
        return Session(options).run()
    except (OSError, ValueError) as exc:
        where = f"{exc.filename}: " if getattr(exc, "filename", None) else ""
        print(f"flux-start: {where}{getattr(exc, 'strerror', None) or exc}", file=sys.stderr)
        return 1


def _join_job(options, environ):
    """Take over the resources of the job this is a task of, if it is one.

    Returns whether to start an instance: one process plays all ranks, so only the first of a job's
    tasks does.

    Raises:
        OSError, ValueError: the enclosing instance does not return the job's resources
    """
    if options.test or "FLUX_JOB_ID" not in environ:
        return True
    from flux_embedded.broker.parent import Parent

    if environ.get("FLUX_TASK_RANK", "0") != "0":
        return False
    try:
        parent = Parent.of_environment(environ)
        if parent is None:
            return True
        options.job_R = parent.resources()
        level = parent.level() + 1
    except (OSError, ValueError) as exc:
        job = environ["FLUX_JOB_ID"]
        raise OSError(5, f"job {job}: no resources from the enclosing instance: {exc}") from None
    options.parent = parent
    options.hosts = rset.hosts(options.job_R)
    options.size = len(options.hosts)
    for name, value in (
        ("instance-level", level),
        ("jobid", parent.job),
        ("parent-uri", parent.uri),
    ):
        options.attrs.define(name, value)
    return True
