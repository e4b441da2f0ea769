# SPDX-License-Identifier: LGPL-3.0-or-later
"""The TreePool chapter of the guide: its pictures are the pool's answers, and its example runs."""

import importlib.util
import re

import pytest
from shared import SRCDIR

GUIDE = SRCDIR / "doc" / "guide"


def pictures():
    path = GUIDE / "treepool" / "pictures.py"
    spec = importlib.util.spec_from_file_location("pictures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(pictures().PICTURES))
def test_picture_is_up_to_date(name):
    module = pictures()
    drawn = module.picture(*module.PICTURES[name])
    kept = (GUIDE / "treepool" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == kept, "run doc/guide/treepool/pictures.py and look at the picture"
    assert f"image:: treepool/{name}.svg" in (GUIDE / "treepool.rst").read_text(encoding="utf-8")


def test_the_example_runs():
    text = (GUIDE / "treepool.rst").read_text(encoding="utf-8")
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text, re.M)
    assert blocks
    for block in blocks:
        code = "".join(line[4:] or "\n" for line in block.splitlines(True))
        assert "assert" in code
        exec(compile(code, "treepool.rst", "exec"), {})
