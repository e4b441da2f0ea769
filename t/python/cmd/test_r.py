# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux R``, as the real command answers (watched on flux-core 0.88)."""

import io
import json

import pytest

from flux_embedded.cmd import r
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats import rset


@pytest.fixture
def flux_R(monkeypatch, capsys):
    """``flux R ARGV`` with sets of resources on standard input; what it printed."""

    def flux_R(argv, *sets):
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(json.dumps(R) for R in sets)))
        code = r.main(argv)
        out, err = capsys.readouterr()
        assert bool(err) == bool(code)
        return err or out

    return flux_R


def test_append_refuses_what_both_have(flux_R):
    one, other = rset.uniform(["a", "b"], 4, 1), rset.uniform(["a"], 2)
    with pytest.raises(CommandError) as info:
        flux_R(["append"], one, other)
    assert str(info.value) == "R objects 'rank[0-1]/core[0-3],gpu0' and 'rank0/core[0-1]' overlap"
    added = {"version": 1, "execution": {"R_lite": [{"rank": "5", "children": {"core": "0"}}], "nodelist": ["c"]}}  # fmt: skip
    execution = json.loads(flux_R(["append"], one, added))["execution"]
    assert execution["nodelist"] == ["a,b,c"] and len(execution["R_lite"]) == 2


@pytest.mark.parametrize("text", ["{", "3 4", '{"version": 1}'])
def test_what_is_no_R_is_refused(flux_R, monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(CommandError, match="^Failed to decode R on stdin: "):
        r.main(["decode"])
