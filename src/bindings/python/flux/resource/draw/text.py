# SPDX-License-Identifier: LGPL-3.0-or-later
"""A node's topology as text, with free units and units of jobs."""

from __future__ import annotations

from typing import Any

from flux.resource.draw.view import Jobs, NodeState, Part, contents, jobs_in, view
from flux.resource.pool.masks import idset_text, members, popcount

FREE_MARK = "."
JOB_MARKS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Marks per line of text; those of a larger domain continue on the next line.
CELLS_PER_LINE = 64


def render_text(
    R: dict[str, Any],
    jobs: Jobs = (),
    down: str = "",
    ranks: str | None = None,
    ascii_only: bool = False,
) -> str:
    """Draw the nodes of R as text: a block per set of nodes in the same state.

    Args:
        R, jobs, down, ranks: as for ``flux.resource.draw.view.view()``.
        ascii_only (bool): whether to use no line-drawing characters.

    Each core and GPU is a character: ``.`` is free, a letter is the job that holds it (see the
    legend), ``*`` a job beyond the letters. The text ends in a newline.

    Raises:
        ValueError: R, a job's R, the topology or an idset is malformed.
    """
    states = view(R, jobs, down, ranks)
    marks = {job: (JOB_MARKS[at : at + 1] or "*") for job, at in jobs_in(states).items()}
    lines = []
    for state in states:
        lines.append(f"{state.title()}: {state.summary()}")
        lines += _below(state, state.part, "", marks, ascii_only, top=True)
        lines.append("")
    if marks:
        lines += _legend(states, marks)
        lines.append("")
    return "\n".join(lines[:-1]) + "\n" if lines else ""


def _below(
    state: NodeState,
    part: Part,
    pad: str,
    marks: dict[Any, str],
    ascii_only: bool,
    top: bool = False,
) -> list[str]:
    lines = []
    own = _cells(state, part, marks)
    width = max([len(_label("core", below.cores)) for below in part.below if below.cores] or [0])
    if top and own:
        lines += [f"{pad}  {line}" for line in own]
    for number, below in enumerate(part.below):
        last = number == len(part.below) - 1
        if ascii_only:
            branch, stem = ("`- ", "   ") if last else ("|- ", "|  ")
        else:
            branch, stem = ("└─ ", "   ") if last else ("├─ ", "│  ")
        memory = f"  {below.memory} GiB" if below.memory else ""
        cells = _cells(state, below, marks, width)
        if below.below:
            lines.append(f"{pad}{branch}{below.name}{memory}")
            lines += [f"{pad}{stem}{line}" for line in cells]
        else:
            lines.append(f"{pad}{branch}{below.name:<9} {cells[0]}{memory}")
            lines += [f"{pad}{stem}{'':<9} {line}" for line in cells[1:]]
        lines += _below(state, below, pad + stem, marks, ascii_only)
    return lines


def _cells(state: NodeState, part: Part, marks: dict[Any, str], width: int = 0) -> list[str]:
    """Return lines for a domain's own cores and GPUs, with a label of some width for the cores."""
    cores = _row(state, part.cores, _label("core", part.cores), max(width, 12), marks, False)
    gpus = _row(state, part.gpus, _label("gpu", part.gpus), 0, marks, True)
    if len(cores) == 1 and gpus:
        return [cores[0] + "   " + gpus[0]] + gpus[1:]
    return cores + gpus


def _label(noun: str, mask: int) -> str:
    ids = idset_text(mask)
    return f"{noun}{'' if ids.isdigit() else 's'} {ids}"


def _row(
    state: NodeState, mask: int, label: str, width: int, marks: dict[Any, str], gpu: bool
) -> list[str]:
    if not mask:
        return []
    text = "".join(marks.get(state.holder(bit, gpu), FREE_MARK) for bit in members(mask))
    rows = [text[at : at + CELLS_PER_LINE] for at in range(0, len(text), CELLS_PER_LINE)]
    return [f"{label:<{width}} {rows[0]}"] + [f"{'':<{width}} {row}" for row in rows[1:]]


def _legend(states: list[NodeState], marks: dict[Any, str]) -> list[str]:
    """Return a line per job: letter, name, units on the nodes shown."""
    held = {job: [0, 0, 0] for job in marks}
    for state in states:
        count = popcount(state.ranks)
        for job, cores, gpus in state.held:
            sums = held[job]
            sums[0] += count
            sums[1] += count * popcount(cores)
            sums[2] += count * popcount(gpus)
    lines = []
    for job, (nodes, cores, gpus) in held.items():
        where = f" on {nodes} nodes" if nodes > 1 else ""
        lines.append(f"{marks[job]} {job}: {contents(cores, gpus)}{where}")
    return lines
