# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux housekeeping kill``: end the scripts that look after nodes between jobs."""

import flux
from flux.job import JobID
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser


def kill(args):
    if not (args.jobid or args.all):
        raise CommandError("specify --jobid or --all")
    payload = {"signum": args.signal}
    if args.jobid:
        payload["jobid"] = args.jobid
    flux.Flux().rpc("job-manager.housekeeping-kill", payload).get()


def main(argv):
    parser = Parser("flux-housekeeping")
    one = parser.command("kill", kill, "send them a signal")
    one.add_argument("-s", "--signal", metavar="N", type=int, default=15, help="its number")
    one.add_argument("-j", "--jobid", metavar="JOBID", type=JobID, help="those of this job")
    one.flag("--all", text="all of them")
    return parser.run(argv)
