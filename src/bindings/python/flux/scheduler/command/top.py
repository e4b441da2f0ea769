# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux sched top``: nodes, queue, promises and reservations at a glance, continuously updated.

On a terminal the view is redrawn in place, in colour unless NO_COLOR is set. If input or output
is not a terminal, each update is a line with a JSON object.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import shutil
import signal
import sys
import time
from typing import Any

from flux.scheduler.attributes import printable
from flux.scheduler.command.subcommand import CommandError, Context, format_duration, format_table
from flux.scheduler.host import counted

#: Colours of node states (SGR): yellow, green, magenta, red. States are also written out, for the
#: colour-blind.
_COLOURS = {"allocated": 33, "free": 32, "reserved": 35, "down": 31}

#: Characters of node states in the bar.
_BAR_MARKS = {"allocated": "#", "reserved": "=", "down": "x", "free": "."}
#: Kind of pending reason -> its text.
_WAIT_TEXTS = {
    "order": "jobs ahead of them",
    "resources": "nodes in use",
    "down": "nodes that are down",
    "reservation": "a reservation",
    "other": "reasons that were not determined",
}

#: Terminal control sequences: enter and leave the alternate screen, go to its top left corner,
#: clear the rest.
_ENTER, _LEAVE, _HOME, _CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"

_QUIT_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TopView:
    """Formats answers of ``sched.stats``; keeps the last one, to compute rates."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: dict[str, Any] | None = None

    def rates(self, answer: dict[str, Any]) -> dict[str, float]:
        """Return passes and job starts per second since the last update; empty at first, and after
        a reload."""
        before, self._before = self._before, answer
        if before is None or before.get("started") != answer.get("started"):
            return {}
        seconds = answer["now"] - before["now"]
        if seconds <= 0:
            return {}
        starts = sum(answer["started_jobs"].values()) - sum(before["started_jobs"].values())
        passes = answer["stats"]["sched_passes"] - before["stats"]["sched_passes"]
        return {"passes": passes / seconds, "starts": starts / seconds}

    def lines(self, answer: dict[str, Any], width: int, height: int) -> list[str]:
        """Return the view of an answer of ``sched.stats``, as lines of text of at most `width`
        columns and `height` lines."""
        now = answer["now"]
        clock = self._context.time

        def until(start: float) -> tuple[str, str]:
            return clock(start, now), format_duration(start - now) if start > now else ""

        stats = answer["stats"]
        nodes = "  ".join(f"{count} {state}" for state, count in answer["nodes"].items() if count)
        rate = "{passes:.1f} per second   {starts:.1f} job starts per second   "
        rates = self.rates(answer)
        lines = [
            f"{answer['name']}  {clock(now, now)}  up {format_duration(now - answer['started'])}",
            f"nodes   {nodes}",
            "        " + state_bar(answer["nodes"], min(60, width - 10)),
            f"queue   {counted(stats['pending_jobs'], 'pending job')}, {stats.get('reserved', 0)} with a promise",
            f"passes  {rate.format(**rates) if rates else ''}{counted(stats['errors'], 'error')}",
        ]
        claims = answer.get("claims")
        if claims:
            nodes = counted(sum(one["nodes"] for one in claims), "node")
            idle = counted(sum(one["idle_cores"] for one in claims), "idle core")
            lines.append(f"claims  {nodes} of one user or bank, with {idle}")
        for level in answer.get("topology", ()):
            name, idle = printable(level["level"]), level["idle_groups"]
            text = f"{name:<7} {idle} of {counted(level['groups'], 'group')} wholly free"
            text += f", at most {counted(level['idle_nodes'], 'free node')} in one"
            if level.get("waiting"):
                text += f"   waiting for one: {counted(level['waiting'], 'job')}"
            lines.append(text)
        for one in answer.get("amounts", ()):
            name = printable(one["amount"])
            lines.append(f"{name:<7} {one['in_use']} of {one['total']} in use")
        reasons = [
            (one["queue"] or "-", one["count"], _WAIT_TEXTS.get(one["kind"], one["kind"]))
            for one in answer["reasons"]
        ]
        promises = [(one["name"], one["nodes"], *until(one["start"])) for one in answer["promises"]]
        reservations = [
            (one["name"], one["state"], one["nodes"], *until(one["start"]))
            for one in answer["reservations"]
        ]
        for head, rows in (
            (("QUEUE", "JOBS", "WAIT FOR"), reasons),
            (("NEXT PROMISES", "NODES", "START", "IN"), promises),
            (("RESERVATION", "STATE", "NODES", "START", "IN"), reservations),
        ):
            if rows:
                lines += ["", *format_table(head, rows, ("JOBS", "NODES"))]
        shown = [printable(line) for line in lines[: max(1, height - 1)]]
        if len(lines) > len(shown):
            shown[-1] = f"... {len(lines) - len(shown) + 1} more lines: make the window taller"
        shown += ["", "q: quit"] if len(shown) < height - 1 else ["q: quit"]
        return [line if len(line) <= width else line[: width - 1] + "+" for line in shown]


def state_bar(counts: dict[str, int], width: int) -> str:
    """Draw the numbers of nodes in each state as a bar; each state that occurs has at least one
    column."""
    total = sum(counts.values())
    if total <= 0 or width < len(_BAR_MARKS):
        return ""
    wide = dict.fromkeys(_BAR_MARKS, 0)
    for state in wide:
        if counts.get(state):
            wide[state] = max(1, round(counts[state] / total * width))
    most = max(wide, key=lambda state: wide[state])
    wide[most] += width - sum(wide.values())
    return "[" + "".join(mark * wide[state] for state, mark in _BAR_MARKS.items()) + "]"


def watch(context: Context, delay: float) -> None:
    """Show the view until the user quits, `delay` seconds between an answer and the next request;
    only once with ``--once``."""
    view = TopView(context)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if context.options.once:
        answer = context.ask("stats")
        lines = view.lines(answer, 1000, 1000)[:-2]
        print(json.dumps(answer) if context.options.json else "\n".join(lines))
    elif context.options.json or not on_terminal:
        answer = None
        while True:
            try:
                answer = context.ask("stats")
                print(json.dumps(answer), flush=True)
            except CommandError as exc:
                if exc.errno != errno.ENOSYS or answer is None:
                    raise
            time.sleep(delay)
    else:
        _on_screen(context, view, delay)


def _on_screen(context: Context, view: TopView, delay: float) -> None:
    """Show the view on the terminal's alternate screen; the terminal is restored however it
    ends."""
    import termios
    import tty

    out, fd = sys.stdout, sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    # Blocked, since Flux's bindings let SIGINT kill the process while they wait for an answer.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _QUIT_SIGNALS)
    try:
        tty.setcbreak(fd)
        out.write(_ENTER)
        answer = None
        while True:
            size = shutil.get_terminal_size()
            # Before Python 3.11 the size may be 0, if the terminal has none.
            columns, rows = size.columns or 80, (size.lines or 24) - 1
            try:
                answer = context.ask("stats", waiting=lambda: _pause(fd, 0.1, size))
                lines = view.lines(answer, columns, rows)
            except CommandError as exc:
                if exc.errno != errno.ENOSYS or answer is None:
                    raise
                lines = [str(exc)[:columns], "q: quit"]  # until another scheduler is loaded
            out.write(_HOME + "\r\n".join(_coloured(line) + "\x1b[K" for line in lines) + _CLEAR)
            out.flush()
            _pause(fd, delay, size)
    except KeyboardInterrupt:
        return
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        out.write(_LEAVE)
        out.flush()


def _pause(fd: int, delay: float, size: os.terminal_size) -> None:
    """Wait `delay` seconds, or until the terminal has another size. Raises KeyboardInterrupt at once
    if the user quits."""
    until = time.monotonic() + delay
    while (left := until - time.monotonic()) > 0 and shutil.get_terminal_size() == size:
        is_ready = select.select([fd], [], [], min(left, 0.2))[0]
        if is_ready and os.read(fd, 1) in (b"q", b"Q", b"\x04", b""):
            raise KeyboardInterrupt
        if signal.sigtimedwait(_QUIT_SIGNALS, 0) is not None:
            raise KeyboardInterrupt


def _coloured(line: str) -> str:
    """Return a line with node states in colour and heads in bold, unless NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return line
    if line.isupper() or line.startswith(("QUEUE", "NEXT", "RESERVATION")):
        return f"\x1b[1m{line}\x1b[m"
    for state, colour in _COLOURS.items():
        bar = f"|{re.escape(_BAR_MARKS[state])}+" if line.startswith("        [") else ""
        line = re.sub(rf"\b[0-9]+ {state}\b{bar}", f"\x1b[{colour}m\\g<0>\x1b[m", line)
    return line
