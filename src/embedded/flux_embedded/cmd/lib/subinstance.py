"""Jobs that are instances: what ``flux alloc`` and ``flux batch`` share.

The job is ``flux broker``, one task a node. The first finds from its environment that it runs in a job, takes over the
resources of that job and plays the brokers of all nodes; the others end at once.
"""

import json

from flux_embedded.cmd.lib import submission
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats.xdg import xdg_searchpath


def add_options(parser):
    parser.add_argument(
        "--conf",
        action="append",
        metavar="CONF",
        help="Set configuration for the new instance (KEY=VAL or a file; multiple use OK)",
    )
    parser.add_argument(
        "--broker-opts", action="append", metavar="OPTS", help="Pass options to the broker"
    )
    parser.add_argument("--dump", nargs="?", metavar="FILE", help="accepted for compatibility")


def _configuration(texts):
    """What all ``--conf`` say together: texts of several lines, settings, files, names of configurations.

    Raises:
        CommandError: one of them cannot be read
    """
    from flux_embedded.broker import config

    whole = {}
    for text in texts:
        try:
            if "\n" in text:
                table = _parse(text)
            elif "=" in text or text.endswith((".toml", ".json")):
                table = config.parse_setting(text)
            else:
                table = config.load_path(_named(text))
        except config.ConfigError as exc:
            raise CommandError(f"--conf: {exc}") from None
        whole = config.merge(whole, table)
    return whole


def _parse(text):
    from flux_embedded.broker import config

    try:
        return json.loads(text)
    except ValueError:
        return config.parse_toml(text, "multiline")


def _named(name):
    """The file of a configuration in the XDG search path."""
    for directory in xdg_searchpath("config"):
        for suffix in (".toml", ".json"):
            path = directory / f"{name}{suffix}"
            if path.exists():
                return str(path)
    raise CommandError(f"--conf: named config '{name}' not found")


def build(args, words, script=None):
    """The jobspec.

    Args:
        args: parsed options.
        words: command of the new instance, or arguments of script.
        script: text of a script to run.
    """
    if not (args.ntasks or args.nodes or args.resources_shape or args.resources_json):
        raise CommandError("Number of slots to allocate must be specified")
    conf = _configuration(args.conf or ())
    start = ["flux", "broker"]
    if conf:
        start.append("-c{{tmpdir}}/conf.json")
    for text in args.broker_opts or ():
        start += text.split(",")
    if script is not None:
        words = ["{{tmpdir}}/script", *words]
    built = submission.build(args, start + words)
    for name, value in (("per-resource.type", "node"), ("mpi", "none"), ("exit-timeout", "none")):
        built.set_option(name, value)
    if script is not None:
        built.add_file("script", script, 0o700)
    if conf:
        built.add_file("conf.json", conf)
    return built.spec
