# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux job``: inspect and control jobs."""

from flux_engine.command.options import Parser


def main(argv):
    from flux_embedded.cmd.job import actions, attach, events, looking

    parser = Parser("flux-job", status=1)
    for part in (actions, attach, events, looking):
        part.add_commands(parser)
    return parser.run(argv)
