# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tells when something blocks the instance.

Modules share one thread. One that sleeps, or runs a program that itself waits for the instance,
without going through its handle, stops everything. Nobody inside can say so then: a thread beside
the loop looks whether it still turns.
"""

import sys
import threading
import traceback

from flux_engine.formats.levels import LOG_ERR

#: Real seconds of standstill before it is reported; doubled for every further report.
FIRST_REPORT = 5.0


class Watchdog:
    """A context manager: watches the loop of the thread that enters it.

    Args:
        ctx (BrokerContext): the broker
        first (float): real seconds until the first report
        stuck: None, or ``stuck(seconds)``, called (in the watchdog's thread) again and again while
            it lasts, with how long it has lasted
    """

    def __init__(self, ctx, first=FIRST_REPORT, stuck=None):
        self.ctx = ctx
        self.first = first
        self.stuck = stuck
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._watched = None

    def __enter__(self):
        self._watched = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        period = self.first / 5
        turns, standing, report_at = -1, 0.0, self.first
        while not self._ended.wait(period):
            # The loop waits, as it should when there is nothing to do, or it turns.
            if self.ctx.kernel.waiting or self.ctx.kernel.turns != turns:
                if report_at > self.first:
                    self.ctx.log(LOG_ERR, f"the instance goes on, after {standing:.0f}s")
                turns, standing, report_at = self.ctx.kernel.turns, 0.0, self.first
                continue
            standing += period
            if self.stuck is not None:
                self.stuck(standing)
            if standing >= report_at:
                report_at *= 2
                self._report(standing)

    def _report(self, standing):
        # Not looked up before: a frame keeps all that its function had, such as a message of 50 MB.
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 (there is no other way)
        task = self.ctx.kernel.running
        name = task.name if task is not None else "broker"
        stack = traceback.extract_stack(frame)
        where = f"{stack[-1].filename}:{stack[-1].lineno} ({stack[-1].name})"
        own = [
            entry
            for entry in stack
            if task is not None and entry.filename == getattr(task, "path", None)
        ]
        if own and own[-1] is not stack[-1]:
            where = f"{own[-1].filename}:{own[-1].lineno} ({own[-1].name}), in {where}"
        self.ctx.log(LOG_ERR, f"{name} has blocked the instance for {standing:.0f}s, at {where}")
