#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Draw the pictures of comparing.rst: the charts of the report about the sample trace, one file each.

doc/guide/comparing/pictures.py
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [os.path.join(TOP, "src/bindings/python"), os.path.join(TOP, "src/embedded")]

from flux.simulate import policy  # noqa: E402
from flux.simulate.report import charts, page  # noqa: E402
from flux.simulate.report.svg import rules  # noqa: E402
from flux.simulate.results.picture import picture_data  # noqa: E402
from flux.simulate.run import Settings, simulate  # noqa: E402
from flux.simulate.trace import Trace  # noqa: E402

POLICIES = ["sched-fifo", "sched-backfill promise=1,unlimited"]


def alone(chart):
    """A chart as a file of its own, on white."""
    style = re.sub(r"@media.*?\n}\n", "", page.asset("page.css"), flags=re.DOTALL)
    style += re.sub(r"@media.*?}}\n", "", rules(len(POLICIES) + 1), flags=re.DOTALL)
    style += "text { font-family: sans-serif; }"
    chart = chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    head, _, body = chart.partition(">")
    return f'{head}><style>{style}</style><rect width="100%" height="100%" fill="#fff"/>{body}\n'


def main():
    workload = Trace("sample").workload()
    pictures, texts = [], policy.parse(POLICIES)
    for one in texts:
        outcome, _ = simulate(workload, one, Settings())
        pictures.append(picture_data(outcome))
    drawn = {
        "waits": charts.waits(pictures),
        "time": charts.over_time(pictures, [one.name for one in texts]),
        "promises": charts.promises(pictures),
        "gantt": charts.gantt(pictures[1], 0),
        "whole": charts.whole_run(
            pictures[1],
            max(picture["end"] for picture in pictures),
            (pictures[1]["gantt"]["begin"], pictures[1]["gantt"]["end"]),
        ),
    }
    for name, chart in drawn.items():
        with open(os.path.join(HERE, f"{name}.svg"), "w", encoding="utf-8") as stream:
            stream.write(alone(chart))


if __name__ == "__main__":
    main()
