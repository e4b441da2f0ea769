# SPDX-License-Identifier: LGPL-3.0-or-later
"""A node's topology as an SVG picture, with free units and units of jobs."""

from __future__ import annotations

from html import escape
from typing import Any

from flux.resource.draw.view import Jobs, NodeState, Part, jobs_in, view
from flux.resource.pool.masks import idset_text, members

# A cell is a core or a GPU; a box is a domain of the topology.
CELL_PX = 14
GAP_PX = 3
PADDING_PX = 8
LINE_PX = 15
CELLS_PER_ROW = 8
BOXES_PER_ROW = 4
FREE_COLOUR = "#ffffff"
JOB_COLOURS = (
    "#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d",
    "#ff9da6", "#79706e", "#2f4b7c", "#a05195",
)  # fmt: skip
LEVEL_SHADES = ("#f7f7f4", "#eeeee9", "#e5e5de")


def render_svg(
    R: dict[str, Any],
    jobs: Jobs = (),
    down: str = "",
    ranks: str | None = None,
    title: str | None = None,
) -> str:
    """Draw the nodes of R as one SVG document: a box per set of nodes in the same state.

    Args:
        R, jobs, down, ranks: as for ``flux.resource.draw.view.view()``.
        title (str or None): a line above the picture.

    Cores are squares, GPUs rounded squares; a colour is a job, white is free.

    Raises:
        ValueError: R, a job's R, the topology or an idset is malformed.
    """
    states = view(R, jobs, down, ranks)
    colours = {job: JOB_COLOURS[at % len(JOB_COLOURS)] for job, at in jobs_in(states).items()}
    out: list[str] = []
    y = PADDING_PX
    width = 240
    if title:
        out.append(_text(PADDING_PX, y + LINE_PX - 4, title, bold=True))
        y += LINE_PX + GAP_PX
        width = max(width, _text_width(title) + 2 * PADDING_PX)
    for state in states:
        for line, bold in ((state.title(), True), (state.summary(), False)):
            out.append(_text(PADDING_PX, y + LINE_PX - 4, line, bold))
            y += LINE_PX
            width = max(width, _text_width(line) + 2 * PADDING_PX)
        box = _Box(state, state.part, colours, 0)
        box.draw(out, PADDING_PX, y)
        y += box.height + PADDING_PX
        width = max(width, box.width + 2 * PADDING_PX)
    for job, colour in colours.items():
        out.append(_rect(PADDING_PX, y, CELL_PX, CELL_PX, colour))
        out.append(_text(PADDING_PX + CELL_PX + GAP_PX * 2, y + CELL_PX - 3, str(job)))
        width = max(width, _text_width(str(job)) + 2 * PADDING_PX + CELL_PX + GAP_PX * 2)
        y += CELL_PX + GAP_PX
    y += PADDING_PX - GAP_PX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}"'
        f' viewBox="0 0 {width} {y}" font-family="sans-serif" font-size="11">'
    )
    background = f'<rect width="{width}" height="{y}" fill="#ffffff"/>'
    return "\n".join([head, background, *out, "</svg>"]) + "\n"


def _rect(
    x: int, y: int, width: int, height: int, fill: str, radius: int = 0, tip: str | None = None
) -> str:
    round_off = f' rx="{radius}"' if radius else ""
    attributes = f'x="{x}" y="{y}" width="{width}" height="{height}"{round_off} fill="{fill}"'
    if tip is None:
        return f'<rect {attributes} stroke="#666666"/>'
    return f'<rect {attributes} stroke="#666666"><title>{escape(tip)}</title></rect>'


def _text(x: int, y: int, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}"{weight}>{escape(text)}</text>'


def _text_width(text: str) -> int:
    return int(len(text) * 6.4)


class _Box:
    """The rectangle of a domain: its label, its own cores and GPUs, the boxes below."""

    def __init__(self, state: NodeState, part: Part, colours: dict[Any, str], depth: int) -> None:
        self.state = state
        self.part = part
        self.colours = colours
        self.depth = depth
        self.rows = [
            (list(members(mask))[at : at + CELLS_PER_ROW], gpu)
            for mask, gpu in ((part.cores, False), (part.gpus, True))
            for at in range(0, len(members(mask)), CELLS_PER_ROW)
        ]
        below = [_Box(state, sub, colours, depth + 1) for sub in part.below]
        # Leaves side by side; boxes with levels of their own stacked.
        across = 1 if any(sub.part.below for sub in below) else BOXES_PER_ROW
        self.lines = [below[at : at + across] for at in range(0, len(below), across)]
        self.label = self._label()
        cells = max((len(row) for row, _ in self.rows), default=0)
        inner = max(
            [cells * (CELL_PX + GAP_PX) - GAP_PX, _text_width(self.label)]
            + [sum(box.width + GAP_PX for box in line) - GAP_PX for line in self.lines]
        )
        self.width: int = inner + 2 * PADDING_PX
        self.height: int = (
            2 * PADDING_PX
            + LINE_PX
            - GAP_PX
            + len(self.rows) * (CELL_PX + GAP_PX)
            + sum(max(box.height for box in line) + GAP_PX for line in self.lines)
        )

    def _label(self) -> str:
        part = self.part
        words = [] if self.depth == 0 and self.lines else [part.name]
        if part.cores:
            words.append(f"cores {idset_text(part.cores)}")
        if part.gpus:
            words.append(f"gpus {idset_text(part.gpus)}")
        if part.memory:
            words.append(f"{part.memory} GiB")
        return "  ".join(words) or part.name

    def draw(self, out: list[str], x: int, y: int) -> None:
        shade = (
            "#dddddd" if self.state.down else LEVEL_SHADES[min(self.depth, len(LEVEL_SHADES) - 1)]
        )
        out.append(_rect(x, y, self.width, self.height, shade, radius=3))
        at = y + PADDING_PX
        out.append(_text(x + PADDING_PX, at + 9, self.label))
        at += LINE_PX
        for row, gpu in self.rows:
            for number, bit in enumerate(row):
                out.append(self._cell(x + PADDING_PX + number * (CELL_PX + GAP_PX), at, bit, gpu))
            at += CELL_PX + GAP_PX
        for line in self.lines:
            along = x + PADDING_PX
            for box in line:
                box.draw(out, along, at)
                along += box.width + GAP_PX
            at += max(box.height for box in line) + GAP_PX

    def _cell(self, x: int, y: int, bit: int, gpu: bool) -> str:
        job = self.state.holder(bit, gpu)
        colour = FREE_COLOUR if job is None else self.colours[job]
        tip = f"{'gpu' if gpu else 'core'} {bit}: {'free' if job is None else job}"
        return _rect(x, y, CELL_PX, CELL_PX, colour, radius=6 if gpu else 0, tip=tip)
