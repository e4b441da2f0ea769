#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests of every kind, right and bent, to the scheduler of the running instance; on either host.

    flux python t/campaign/live_messages.py [--seed N] [--requests N]
    FLUX_HANDLE_USERID=1001 FLUX_HANDLE_ROLEMASK=0x2 flux python t/campaign/live_messages.py --guest ...

A guest sends requests of all topics. The owner of the instance has the job manager's privileges, so
that valid requests of its kind would take effect: of these only some without a legal id are sent.
No state may change: the jobs and their states, allocations, reservations, and the loaded scheduler.
Each request is answered, or dropped if its topic has no answer.
"""

import argparse
import errno
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import payloads  # noqa: E402

import flux  # noqa: E402

#: Seconds within which a request is answered.
ANSWER_SECONDS = 30.0
JOB_MANAGER = ("sched.alloc", "sched.free", "sched.cancel", "sched.prioritize", "sched.expiration")
NO_IDS = (None, True, -1, 1.5, "1", [], {}, 1 << 64, float("nan"))


class Violation(Exception):
    """An invariant is broken."""


def ask(h, topic, payload=None):
    """Send a request; returns (errnum, payload or None).

    Raises:
        Violation: there is no answer
    """
    try:
        return 0, h.rpc(topic, payload).wait_for(ANSWER_SECONDS).get()
    except OSError as exc:
        if exc.errno == errno.ETIMEDOUT:
            raise Violation(
                f"{topic}: no answer in {ANSWER_SECONDS:.0f} s to {str(payload)[:300]}"
            ) from None
        return exc.errno, None


def state(h, module):
    """The state that no query and no guest may change."""
    jobs = ask(h, "job-list.list", {"max_entries": 0, "attrs": ["state"]})[1]["jobs"]
    status = ask(h, "resource.sched-status")[1]
    held = ((status.get("allocated") or {}).get("execution") or {}).get("R_lite")
    reserved = ask(h, "sched.reservations")[1]
    names = sorted(one["name"] for one in (reserved or {}).get("reservations", ()))
    return sorted((job["id"], job["state"]) for job in jobs), held, names, module_of(h)


def module_of(h):
    """The scheduler that is loaded."""
    for name in ("sched-fifo", "sched-simple", "sched-backfill"):
        if not ask(h, f"{name}.stats-get")[0]:
            return name
    raise Violation("no scheduler answers")


def request(chance, module, guest):
    """A topic, and the text of its payload."""
    topic = chance.choice(sorted(payloads.SCHEMAS))
    payload = payloads.make(chance, topic)
    if chance.random() < 0.6:
        payload = payloads.bend(chance, payload)
    if not guest:
        if topic in JOB_MANAGER:
            payload = dict(payload) if isinstance(payload, dict) else {}
            payload["id"] = chance.choice(NO_IDS)
            if topic == "sched.prioritize":
                payload = {"jobs": [[chance.choice(NO_IDS), 16]]}
        elif topic in ("sched.reserve", "sched.unreserve"):
            payload = {"reservation": chance.choice(payloads.ODD), "name": chance.choice(NO_IDS)}
    text = payloads.text_of(chance, payload)
    return topic.replace("NAME", module), text


def run(seed, requests, guest):
    """Send `requests` requests.

    Raises:
        Violation: an invariant is broken
    """
    chance = random.Random(seed)
    h = flux.Flux()
    # A guest may not query all of the state: use the owner's handle.
    userid, rolemask = (os.environ.pop(name, None) for name in GUEST)
    owner = flux.Flux()
    if userid is not None:
        os.environ.update(zip(GUEST, (userid, rolemask)))
    module = module_of(owner)
    before = state(owner, module)
    counts = {}
    for number in range(requests):
        topic, text = request(chance, module, guest)
        # A request for resources without a legal id is dropped: its answer could not be matched to
        # a job.
        if topic in payloads.UNANSWERED or (topic in payloads.OPEN and not guest):
            h.rpc(topic, text, flags=flux.constants.FLUX_RPC_NORESPONSE)
            errnum = "dropped"
        else:
            errnum = ask(h, topic, text)[0]
            if guest and not errnum and topic.replace(module, "NAME") not in payloads.QUESTIONS:
                raise Violation(f"a guest may {topic} {text}")
        counts[errnum] = counts.get(errnum, 0) + 1
        if number % 50 == 49:
            after = state(owner, module)
            if after != before:
                raise Violation(f"after {topic} {text}: {before} has become {after}")
    if state(owner, module) != before:
        raise Violation(f"{before} has become {state(owner, module)}")
    return counts


GUEST = ("FLUX_HANDLE_USERID", "FLUX_HANDLE_ROLEMASK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--guest", action="store_true", help="what a guest sends")
    args = parser.parse_args()
    if args.guest != (GUEST[0] in os.environ):
        sys.exit("live_messages.py: a guest has FLUX_HANDLE_USERID and FLUX_HANDLE_ROLEMASK set")
    started = time.monotonic()
    try:
        counts = run(args.seed, args.requests, args.guest)
    except Violation as violation:
        print(f"FAIL seed={args.seed}: {violation}")
        return 1
    print(f"seed {args.seed}: {counts} in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
