# SPDX-License-Identifier: LGPL-3.0-or-later
"""t/bench/all compares two trees; here both have programs that print what they are told."""

import json
import shutil
import subprocess
import sys

import pytest


def make_tree(path, srcdir, factor):
    """A checkout in which everything takes `factor` times as long."""
    bench = path / "t" / "bench"
    bench.mkdir(parents=True)
    shutil.copy(srcdir / "t" / "bench" / "all", bench / "all")
    answers = {
        "pool": {
            "measures": {
                "a": {"what": "a core", "unit": "us", "values": {"64": 1, "1024": 10 * factor}},
                "b": {"what": "bytes", "unit": "B", "values": {"64": 1}},
            }
        },
        "instance": {"us_per_job": [70 * factor, 50 * factor]},
        "year": {"jobs_per_cpu_second": 1000 / factor},
    }
    for name, answer in answers.items():
        (bench / name).write_text(f"print({json.dumps(answer)!r})\n")
    return path


def run(tree, *args):
    return subprocess.run(
        [sys.executable, str(tree / "t" / "bench" / "all"), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_tree_that_is_slower_is_found(tmp_path, srcdir):
    ours = make_tree(tmp_path / "ours", srcdir, 3)
    other = make_tree(tmp_path / "other", srcdir, 2)
    done = run(ours, other, "--rounds=1")
    assert done.returncode == 1
    assert done.stdout.count("SLOWER") == 3
    line = next(line for line in done.stdout.splitlines() if line.startswith("pool: a core"))
    assert line.split()[-4:] == ["30.0", "20.0", "0.67", "SLOWER"] and "1,024 nodes" in line
    done = run(ours, other, "--rounds=1", "--floor=0.6")
    assert done.returncode == 0 and "SLOWER" not in done.stdout


@pytest.mark.parametrize("broken", [True, False])
def test_what_is_no_checkout_or_fails_is_said(tmp_path, srcdir, broken):
    ours = make_tree(tmp_path / "ours", srcdir, 1)
    other = tmp_path / "other"
    other.mkdir()
    if broken:
        make_tree(tmp_path / "broken", srcdir, 1)
        other = tmp_path / "broken"
        (other / "t" / "bench" / "year").write_text("raise SystemExit('no such year')\n")
    done = run(ours, other, "--rounds=1")
    assert done.returncode and ("no such year" if broken else "no checkout") in done.stderr
