# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sphinx settings: the guide, the reference and the man pages (make html, make)."""

import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SRCDIR = os.path.dirname(HERE)
# The reference is made from docstrings; the embedded bindings stand in for the host's.
sys.path[:0] = [
    os.path.join(HERE, "_ext"),
    os.path.join(SRCDIR, "src", "bindings", "python"),
    os.path.join(SRCDIR, "src", "embedded"),
]

project = "flux-scheduler"
author = "The flux-scheduler developers"
copyright = "the flux-scheduler developers. LGPL-3.0-or-later"
release = version = runpy.run_path(
    os.path.join(SRCDIR, "src", "bindings", "python", "flux_scheduler_version.py")
)["VERSION"]

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "state_tables", "disclosure_table"]
exclude_patterns = ["_build", "_ext"]
root_doc = "index"
if "man" in sys.argv:
    # No man page has a docstring in it, and a build for a real Flux may have no bindings to import.
    suppress_warnings = ["autodoc", "autodoc.import_object"]
# A page links to others only through :doc: and :ref:, so that -W finds the broken ones; nothing is fetched.
nitpicky = False
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": True}
autodoc_typehints = "none"
napoleon_use_rtype = False
highlight_language = "none"

html_theme = "furo"
html_title = f"flux-scheduler {release}"
html_static_path = ["_static"]
html_css_files = ["room.css"]
html_show_sourcelink = False

man_pages = [
    ("man/flux-scheduler", "flux-scheduler", "Flux schedulers in Python", author, "7"),
    ("man/flux-sched", "flux-sched", "ask the scheduler, and reserve ahead of time", author, "1"),
    ("man/flux-sched-attributes", "flux-sched-attributes", "what jobs say", author, "5"),
    (
        "man/flux-config-sched",
        "flux-config-sched",
        "configure limits, licences and sharing of nodes",
        author,
        "5",
    ),
    ("man/flux-sched-fifo", "flux-sched-fifo", "first come, first served scheduler", author, "7"),
    (
        "man/flux-sched-simple",
        "flux-sched-simple",
        "first come, first served scheduler with lookahead messages",
        author,
        "7",
    ),
    ("man/flux-sched-backfill", "flux-sched-backfill", "backfilling scheduler", author, "7"),
    ("man/flux-simulate", "flux-simulate", "run jobs through schedulers, and compare", author, "1"),
    ("man/flux-embedded", "flux-embedded", "the embedded instance and its command", author, "7"),
]
man_show_urls = False
