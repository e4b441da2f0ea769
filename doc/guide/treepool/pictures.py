#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Draw the pictures of the TreePool chapter: each is what a pool answers to a few requests.

    python doc/guide/treepool/pictures.py [DIR]

writes NAME.svg into DIR (default: beside this file).
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [
    os.path.join(TOP, "src", "bindings", "python"),
    os.path.join(TOP, "src", "embedded"),
]

NUMAS = [
    {"cores": "0-5", "gpus": "0"}, {"cores": "6-11", "gpus": "1"},
    {"cores": "12-17", "gpus": "2"}, {"cores": "18-23"},
]  # fmt: skip
TOPO = {"socket": [{"numa": NUMAS[:2]}, {"numa": NUMAS[2:], "gpus": "3"}]}

#: name of the picture -> title, shapes of the jobs, in the order in which they are allocated
PICTURES = {
    "gpus": (
        "GPU slots go to the finest domain that holds them",
        ["slot=2/[core=2;gpu]", "slot/[core=6;gpu]"],
    ),
    "coarser": (
        "what no numa domain holds goes to a socket",
        ["slot/[core=2;gpu]", "slot/[core=8;gpu]", "slot/[core;gpu=2]"],
    ),
    "cores": (
        "slots of cores fill the tightest domain",
        ["slot/core=4", "slot/core=2", "slot=2/core=5", "slot/core=8"],
    ),
    "containers": (
        "whole containers, by name",
        ["slot/[core;gpu]", "slot/numa{x}", "slot/socket{x}"],
    ),
}


def node():
    """R of one such node."""
    lite = [{"rank": "0", "children": {"core": "0-23", "gpu": "0-3"}}]
    execution = {"R_lite": lite, "nodelist": ["node0"], "starttime": 0, "expiration": 0}
    scheduling = {"writer": "TreePool", "children": [{"ranks": "0", "topo": TOPO}]}
    return {"version": 1, "execution": execution, "scheduling": scheduling}


def picture(title, shapes):
    """The SVG document of some jobs on one node."""
    from flux.resource.draw.svg import render_svg
    from flux.resource.TreePool import TreePool
    from flux.shape.parser import ShapeParser

    pool = TreePool(node())
    jobs = []
    for number, text in enumerate(shapes, 1):
        resources = ShapeParser().parse(text)
        request = pool.parse_resource_request(
            {"version": 9999, "resources": resources, "attributes": {}}
        )
        jobs.append((f"{number}.  {text}", pool.alloc(number, request).to_dict()))
    return render_svg(node(), jobs, title=title)


def main():
    where = sys.argv[1] if len(sys.argv) > 1 else HERE
    for name, (title, shapes) in PICTURES.items():
        with open(os.path.join(where, f"{name}.svg"), "w", encoding="utf-8") as stream:
            stream.write(picture(title, shapes))


if __name__ == "__main__":
    main()
