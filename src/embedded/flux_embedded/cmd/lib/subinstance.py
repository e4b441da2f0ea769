"""Jobs that are instances: what ``flux alloc`` and ``flux batch`` share.

The job's one process is ``flux start``, which finds from its environment that it runs in a job and
takes over the resources of that job.
"""

from flux_embedded.cmd.lib import submission
from flux_embedded.cmd.lib.errors import CommandError


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


def _check_conf(text):
    """What the new instance could not read is an error here, where somebody sees it."""
    from flux_embedded.broker import config

    try:
        config.parse_setting(text)
    except config.ConfigError as exc:
        raise CommandError(f"--conf: {exc}") from None


def build(args, words, script=None):
    """The jobspec.

    Args:
        args: parsed options.
        words: command of the new instance, or arguments of script.
        script: text of a script to run.
    """
    if not (args.ntasks or args.nodes or args.resources_shape or args.resources_json):
        raise CommandError("Number of slots to allocate must be specified")
    for text in args.conf or ():
        _check_conf(text)
    start = ["flux", "start"]
    start += [f"--conf={text}" for text in args.conf or ()]
    start += [f"--broker-opts={text}" for text in args.broker_opts or ()]
    if script is not None:
        # The script travels in the jobspec. The job itself puts it into a file, in the run directory of
        # the new instance, which goes with it however it ends.
        runner = (
            'd=${FLUX_URI#local://} && f=${d%/*}/script && printf %s "$FLUX_BATCH_SCRIPT" >"$f" && '
            'chmod 700 "$f" && exec "$f" "$@"'
        )
        words = ["sh", "-c", runner, "sh", *words]
    built = submission.build(args, start + words)
    built.spec["tasks"][0]["count"] = {"total": 1}
    if script is not None:
        built.system["environment"]["FLUX_BATCH_SCRIPT"] = script
    return built.spec
