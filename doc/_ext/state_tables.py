# SPDX-License-Identifier: LGPL-3.0-or-later
"""A Sphinx directive that draws a table of `flux.scheduler.states`::

    .. states:: REQUEST

gives a picture of the states and moves, and a table with the meaning of each. Both are made of what
the scheduler itself runs on, so that they cannot say anything else.
"""

from __future__ import annotations

import importlib.util
import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from flux.scheduler import states
else:
    # The file by itself: man pages are also made where there are no bindings to import a package with.
    path = Path(__file__).parents[2] / "src/bindings/python/flux/scheduler/states.py"
    spec = importlib.util.spec_from_file_location("states", path)
    states = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(states)

WIDTH, HEIGHT = 640, 340
#: Half the width and half the height of a state's box.
BOX_X, BOX_Y = 52, 18
#: How far an arrow bends to the side: moves there and back are two arrows.
BEND = 46
LOOP = 58

Point = tuple[float, float]


def moves_between(table: states.StateTable) -> dict[tuple[str, str], list[str]]:
    """By state and next state, the events that lead from one to the other."""
    between: dict[tuple[str, str], list[str]] = {}
    for state, events in table.moves.items():
        for event, after in events.items():
            between.setdefault((state, after), []).append(event)
    return between


def picture(table: states.StateTable) -> str:
    """The states on an ellipse, the first one on the left, and an arrow for each move, as SVG."""
    centre = (WIDTH / 2, HEIGHT / 2)
    at: dict[str, Point] = {}
    for number, state in enumerate(table.moves):
        angle = math.pi + 2 * math.pi * number / len(table.moves)
        at[state] = (
            centre[0] + (WIDTH / 2 - BOX_X - 40) * math.cos(angle),
            centre[1] + (HEIGHT / 2 - BOX_Y - 42) * math.sin(angle),
        )
    marker = f"arrow-{table.name}"
    lines = [
        f'<svg class="states" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(table.name)}: states and moves" font-size="13" '
        'xmlns="http://www.w3.org/2000/svg">',
        f'<defs><marker id="{marker}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        'markerHeight="8" orient="auto-start-reverse"><path d="M0,0L10,5L0,10z" '
        'fill="currentColor"/></marker></defs>',
    ]
    for (state, after), events in moves_between(table).items():
        path, label = loop(at[state], centre) if state == after else arrow(at[state], at[after])
        lines.append(
            f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#{marker})"/>'
        )
        lines.append(
            f'<text x="{label[0]:.0f}" y="{label[1] + 4:.0f}" text-anchor="middle" '
            'fill="currentColor" stroke="var(--color-background-primary, white)" '
            f'stroke-width="5" paint-order="stroke">{escape(", ".join(events))}</text>'
        )
    for state, (x, y) in at.items():
        last = not table.moves[state]
        lines.append(
            f'<rect x="{x - BOX_X:.0f}" y="{y - BOX_Y:.0f}" width="{2 * BOX_X}" height="{2 * BOX_Y}" '
            f'rx="{BOX_Y if state == table.initial else 5}" '
            'fill="var(--color-background-primary, white)" '
            f'stroke="currentColor" stroke-width="{3 if last else 1.5}"/>'
        )
        lines.append(
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="currentColor" '
            f'font-weight="bold">{escape(state)}</text>'
        )
    return "\n".join([*lines, "</svg>"])


def arrow(start: Point, end: Point) -> tuple[str, Point]:
    """The path from one box to another, bent to its left, and where its label goes."""
    (x0, y0), (x1, y1) = start, end
    length = math.hypot(x1 - x0, y1 - y0)
    bend = ((y1 - y0) / length * BEND, -(x1 - x0) / length * BEND)
    middle = ((x0 + x1) / 2 + bend[0], (y0 + y1) / 2 + bend[1])
    begin, finish = border(start, middle), border(end, middle)
    path = "M{:.0f},{:.0f} Q{:.0f},{:.0f} {:.0f},{:.0f}".format(*begin, *middle, *finish)
    # Nearer to where it comes from, so that labels of arrows that cross do not.
    t = 0.34
    return path, (
        (1 - t) ** 2 * begin[0] + 2 * t * (1 - t) * middle[0] + t * t * finish[0],
        (1 - t) ** 2 * begin[1] + 2 * t * (1 - t) * middle[1] + t * t * finish[1],
    )


def loop(at: Point, centre: Point) -> tuple[str, Point]:
    """The path from a box to itself, on the side away from the centre, and where its label goes."""
    x, y = at
    side = -1 if y <= centre[1] else 1
    edge, far = y + side * BOX_Y, y + side * LOOP
    path = f"M{x - 16:.0f},{edge:.0f} C{x - 30:.0f},{far:.0f} {x + 30:.0f},{far:.0f} {x + 16:.0f},{edge:.0f}"
    return path, (x, y + side * (BOX_Y + LOOP * 0.5))


def border(box: Point, towards: Point) -> Point:
    """Where a line from the middle of a box to a point leaves the box."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min(BOX_X / abs(dx) if dx else math.inf, BOX_Y / abs(dy) if dy else math.inf)
    return box[0] + dx * scale, box[1] + dy * scale


def table_text(table: states.StateTable) -> list[str]:
    """The states, what they mean, and what can happen in them, as reStructuredText."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 14 52 34",
        "",
        "   * - State",
        "     - What it means",
        "     - What can happen, and the state then",
    ]
    for state, events in table.moves.items():
        moves = [f"| *{event}*: {after}" for event, after in events.items()] or ["nothing more"]
        first = " (first)" if state == table.initial else ""
        lines += [
            f"   * - **{state}**{first}",
            f"     - {table.notes[state]}",
            f"     - {moves[0]}",
        ]
        lines += [f"       {move}" for move in moves[1:]]
    return lines


class States(SphinxDirective):
    """``.. states:: NAME``, where NAME is a table of `flux.scheduler.states`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        table = getattr(states, self.arguments[0], None)
        if not isinstance(table, states.StateTable):
            raise self.error(f"flux.scheduler.states has no table {self.arguments[0]}")
        self.env.note_dependency(str(states.__file__))
        self.env.note_dependency(__file__)
        text = StringList(table_text(table), source=str(states.__file__))
        parsed = nodes.container()
        self.state.nested_parse(text, self.content_offset, parsed)
        return [nodes.raw("", picture(table), format="html"), *parsed.children]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("states", States)
    return {"version": "1", "parallel_read_safe": True}
