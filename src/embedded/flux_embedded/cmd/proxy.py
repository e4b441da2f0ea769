# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux proxy``: run a command that speaks to another instance on this host."""

import argparse
import os

import flux
from flux.job import JobID, job_list_id
from flux.uri import JobURI
from flux_embedded.cmd.env import execute
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.options import Parser


def uri_of(target):
    """The local URI that a URI or a job id stands for."""
    if target.startswith("local://"):
        return target
    if "://" in target or target.startswith("ssh:"):
        raise CommandError(f"{target}: only local:// on this host can be reached from here")
    try:
        attrs = ["annotations", "state"]
        job = job_list_id(flux.Flux(), JobID(target), attrs).get_jobinfo()
    except (OSError, ValueError) as exc:
        reason = (
            f"jobid {target} not found" if isinstance(exc, FileNotFoundError) else error_text(exc)
        )
        raise CommandError(f"Unable to resolve {target} to a URI: {reason}") from None
    if not job.uri:
        raise CommandError(f"Unable to resolve {target} to a URI: URI not found for job {target}")
    return JobURI(str(job.uri)).local


def main(argv):
    parser = Parser("flux-proxy", status=1)
    parser.flag("-f", "--force", text="accepted, all versions are alike here")
    parser.flag("-n", "--nohup", text="accepted")
    parser.add_argument("target", metavar="JOBID|URI")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    uri = uri_of(args.target)
    flux.Flux(uri)
    shell = os.environ.get("SHELL", "/bin/sh")
    command = args.command or [shell]
    if len(args.command) == 1:
        command = [shell, "-c", args.command[0]]
    execute(command, {**os.environ, "FLUX_URI": uri})
