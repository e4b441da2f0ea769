# SPDX-License-Identifier: LGPL-3.0-or-later
"""Unreliable ranks and predictions, for fault runs: promises must be kept regardless of them."""

ANSWERS = (float("nan"), -1.0, 0.0, float("inf"), 1e99, 3.0, None, "soon", 50.0)


def rank(scheduler, job):
    return ANSWERS[job.jobid * 7919 % len(ANSWERS)]


def predict(scheduler, job):
    if job.jobid % 5 == 0:
        raise LookupError("nobody knows")
    return ANSWERS[(job.jobid * 104729 + int(scheduler.now())) % len(ANSWERS)]
