# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start of the test personality job: invented resources on every rank, the job services and sched-simple."""

import json
import os
import socket
import subprocess

import flux
import flux.kvs
from flux.modprobe import task

JOB_EXEC = [] if os.environ.get("TEST_UNDER_FLUX_NO_JOB_EXEC") == "y" else ["job-exec"]


def setup(context):
    context.load_modules(
        [
            "content",
            "content-sqlite",
            "heartbeat",
            "kvs",
            "kvs-watch",
            "resource",
            "job-manager",
            "job-ingest",
            "job-info",
            "job-list",
            *JOB_EXEC,
            "sched-simple",
        ]
    )
    context.setopt("resource", "noverify")
    mode = os.environ.get("TEST_UNDER_FLUX_SCHED_SIMPLE_MODE")
    if mode:
        context.setopt("sched-simple", "mode=" + mode)


@task("store-R", ranks="0", after=["kvs"], before=["resource"])
def store_R(context):
    """Put the resources of all ranks into the KVS, where the resource module looks for them."""
    h = flux.Flux()
    size = int(h.attr_get("size"))
    children = {}
    for kind, count in (
        ("gpu", int(os.environ.get("TEST_UNDER_FLUX_GPUS_PER_RANK", 0))),
        ("core", int(os.environ.get("TEST_UNDER_FLUX_CORES_PER_RANK", 2))),
    ):
        if count:
            children[kind] = f"0-{count - 1}" if count > 1 else "0"
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": f"0-{size - 1}" if size > 1 else "0", "children": children}],
            "starttime": 0.0,
            "expiration": 0.0,
            # All brokers of a test instance run on this host.
            "nodelist": [",".join([socket.gethostname()] * size)],
        },
    }
    flux.kvs.put(h, "resource.R", json.dumps(R, separators=(",", ":")), raw=True)
    flux.kvs.commit(h)


@task("set-debug", ranks="0", after=["sched-simple"])
def set_debug(context):
    """Have sched-simple say why a job is pending, as the scripts written for it expect."""
    subprocess.run(
        ["flux", "module", "debug", "--setbit", "0x2", "sched-simple"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
