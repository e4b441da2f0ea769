# SPDX-License-Identifier: LGPL-3.0-or-later
"""A Sphinx directive, ``.. disclosure::``, that shows `flux.scheduler.disclosure.FIELDS`, which the
scheduler itself goes by."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

# The file by itself: pages are also made where there are no bindings to import a package with.
SOURCE = Path(__file__).parents[2] / "src/bindings/python/flux/scheduler/disclosure.py"


def table_text(fields: dict[str, Any]) -> list[str]:
    """The table as reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 22 42 22 14", ""]
    rows = [("Object", "All guests", "Not in private mode", "Never")]
    rows += [
        (f"``{path}``", *(" ".join(names.split()) for names in one)) for path, one in fields.items()
    ]
    for row in rows:
        lines += [f"   {'*' if at == 0 else ' '} - {cell}" for at, cell in enumerate(row)]
    return lines


class Disclosure(SphinxDirective):
    """``.. disclosure::``"""

    def run(self) -> list[nodes.Node]:
        spec = importlib.util.spec_from_file_location("disclosure", SOURCE)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.env.note_dependency(str(SOURCE))
        self.env.note_dependency(__file__)
        parsed = nodes.container()
        text = StringList(table_text(module.FIELDS), source=str(SOURCE))
        self.state.nested_parse(text, self.content_offset, parsed)
        return list(parsed.children)


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("disclosure", Disclosure)
    return {"version": "1", "parallel_read_safe": True}
