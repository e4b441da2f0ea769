# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux sched top``: what the scheduler is doing, at a glance, again and again.

On a terminal the view is redrawn in place, with ``rich`` where it is installed and with plain
lines elsewhere. Off a terminal each update is one JSON object on a line of its own.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, TextIO

from flux.scheduler.command.formatting import format_duration, format_table, plural, printable

if TYPE_CHECKING:
    from flux.scheduler.command.cli import Context

#: Colours of the states of nodes; what they say is written beside them as well.
_COLOURS = {"allocated": "yellow", "free": "green", "reserved": "magenta", "down": "red"}

#: What the states look like in a bar, and what of a kind of wait a user should read.
_BAR_MARKS = {"allocated": "#", "reserved": "=", "down": "x", "free": "."}
_WAIT_TEXTS = {
    "order": "jobs ahead of them",
    "resources": "nodes in use",
    "down": "nodes that are down",
    "reservation": "a reservation",
}

#: Enter and leave the terminal's other screen, and go to its top left corner.
_ENTER, _LEAVE, _HOME, _CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"


class TopView:
    """The text of one update, and what it takes from the one before.

    Args:
        context: for how times are written
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: Optional[Dict[str, Any]] = None

    def rates(self, answer: Dict[str, Any]) -> Dict[str, float]:
        """Passes and starts a second since the last update; nothing the first time."""
        before, self._before = self._before, answer
        if before is None or before.get("started") != answer.get("started"):
            return {}
        seconds = answer["now"] - before["now"]
        if seconds <= 0:
            return {}
        starts = sum(answer["started_jobs"].values()) - sum(before["started_jobs"].values())
        passes = answer["stats"]["sched_passes"] - before["stats"]["sched_passes"]
        return {"passes": passes / seconds, "starts": starts / seconds}

    def lines(self, answer: Dict[str, Any], width: int, height: int) -> List[str]:
        """The view in at most `height` lines of at most `width` columns."""
        now = answer["now"]
        clock = self._context.time
        rates = self.rates(answer)
        lines = [
            f"{answer['name']}  {clock(now, now)}  up {format_duration(now - answer['started'])}",
            "nodes   "
            + "  ".join(f"{count} {state}" for state, count in answer["nodes"].items() if count),
            "        " + state_bar(answer["nodes"], min(60, width - 10)),
            f"queue   {plural(answer['stats']['pending_jobs'], 'pending job')}"
            f", {answer['stats'].get('reserved', 0)} with a promise",
            "passes  "
            + (
                f"{rates['passes']:.1f} a second   {rates['starts']:.1f} jobs started a second   "
                if rates
                else ""
            )
            + plural(answer["stats"]["errors"], "error"),
        ]
        if answer["reasons"]:
            lines += ["", *format_table(
                ("QUEUE", "JOBS", "WAIT FOR"),
                [
                    (one["queue"] or "-", one["count"], _WAIT_TEXTS.get(one["kind"], one["kind"]))
                    for one in answer["reasons"]
                ],
                ("JOBS",),
            )]  # fmt: skip
        if answer["promises"]:
            lines += ["", *format_table(
                ("NEXT PROMISES", "NODES", "START", "IN"),
                [
                    (one["name"], one["nodes"], clock(one["start"], now), format_duration(one["start"] - now))
                    for one in answer["promises"]
                ],
                ("NODES",),
            )]  # fmt: skip
        if answer["reservations"]:
            lines += ["", *format_table(
                ("RESERVATION", "STATE", "NODES", "START", "IN"),
                [
                    (one["name"], one["state"], one["nodes"], clock(one["start"], now),
                     format_duration(one["start"] - now) if one["start"] > now else "")
                    for one in answer["reservations"]
                ],
                ("NODES",),
            )]  # fmt: skip
        shown = [printable(line) for line in lines[: max(1, height - 1)]]
        if len(lines) > len(shown):
            shown[-1] = f"... {len(lines) - len(shown) + 1} more lines: make the window taller"
        shown += ["", "q: quit"] if len(shown) < height - 1 else ["q: quit"]
        return [line if len(line) <= width else line[: width - 1] + "+" for line in shown]


def state_bar(counts: Dict[str, int], width: int) -> str:
    """Counts of states as a bar: each that is not 0 has a column at least."""
    total = sum(counts.values())
    if total <= 0 or width < len(_BAR_MARKS):
        return ""
    wide = {
        state: max(1, round(counts.get(state, 0) / total * width)) if counts.get(state) else 0
        for state in _BAR_MARKS
    }
    most = max(wide, key=lambda state: wide[state])
    wide[most] += width - sum(wide.values())
    return "[" + "".join(mark * wide[state] for state, mark in _BAR_MARKS.items()) + "]"


def watch(context: Context, delay: float) -> None:
    """Show updates until the user quits.

    Args:
        context: who to ask, and the options of the command line
        delay: seconds from one answer to the next question
    """
    view = TopView(context)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if context.options.once:
        answer = context.ask("stats")
        if context.options.json:
            print(json.dumps(answer))
        else:
            print("\n".join(view.lines(answer, 1000, 1000)[:-2]))
    elif context.options.json or not on_terminal:
        while True:
            print(json.dumps(context.ask("stats")), flush=True)
            time.sleep(delay)
    else:
        _AlternateScreen(sys.stdin, sys.stdout).run(context, view, delay)


class _AlternateScreen:
    """The terminal's other screen: left as it was, whatever ends the view."""

    def __init__(self, keys: TextIO, out: TextIO) -> None:
        self._keys = keys
        self._out = out

    def run(self, context: Context, view: TopView, delay: float) -> None:
        import termios
        import tty

        fd = self._keys.fileno()
        before = termios.tcgetattr(fd)
        term = signal.signal(signal.SIGTERM, _quit)
        resized = signal.signal(signal.SIGWINCH, lambda *_: None)
        try:
            tty.setcbreak(fd)
            self._out.write(_ENTER)
            while True:
                answer = context.ask("stats")
                self._draw(view, answer)
                if self._wait(delay):
                    return
        except KeyboardInterrupt:
            return
        finally:
            signal.signal(signal.SIGTERM, term)
            signal.signal(signal.SIGWINCH, resized)
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
            self._out.write(_LEAVE)
            self._out.flush()

    def _draw(self, view: TopView, answer: Dict[str, Any]) -> None:
        size = shutil.get_terminal_size()
        lines = view.lines(answer, size.columns, size.lines - 1)
        self._out.write(_HOME + "\r\n".join(_coloured(line) + "\x1b[K" for line in lines) + _CLEAR)
        self._out.flush()

    def _wait(self, delay: float) -> bool:
        """Wait for the next update; True if the user wants to quit."""
        until = time.monotonic() + delay
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return False
            ready, _, _ = select.select([self._keys], [], [], left)
            if ready:
                key = os.read(self._keys.fileno(), 1)
                if key in (b"q", b"Q", b"\x04", b""):
                    return True


def _quit(*_: Any) -> None:
    raise KeyboardInterrupt


def _coloured(line: str) -> str:
    """The line with the states of nodes in colour, if there is rich and colour is wanted."""
    if os.environ.get("NO_COLOR"):
        return line
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return line
    text = Text(line)
    for state, colour in _COLOURS.items():
        text.highlight_regex(rf"\b[0-9]+ {state}\b", colour)
        if line.startswith("        ["):
            text.highlight_regex(re.escape(_BAR_MARKS[state]) + "+", colour)
    if line.isupper() or line.startswith(("QUEUE", "NEXT", "RESERVATION")):
        text.stylize("bold")
    console = Console(force_terminal=True, width=max(1, len(line)) + 1, highlight=False)
    with console.capture() as capture:
        console.print(text, end="", soft_wrap=True)
    return capture.get()
