# SPDX-License-Identifier: LGPL-3.0-or-later
"""Options of ``flux sched when``: the jobspec is that of ``flux submit`` with the same options."""

import argparse

import pytest

from flux.cli.submit import SubmitCmd
from flux.scheduler.command import jobspec_options


def asked(*options):
    parser = argparse.ArgumentParser()
    jobspec_options.add_options(parser)
    return jobspec_options.jobspec_from_options(parser.parse_args(options))


@pytest.mark.parametrize(
    "options",
    [
        "-n4 -c2 -g1 -t 90m", "-N2 -n4 -g2", "-N2", "-N2 -x -n2", "-g0", "-N2 --gpus-per-node=4",
        "-N2 --tasks-per-node=3", "-N2 --cores=8 --gpus-per-node=2", "--cores=8 --tasks-per-core=2",
    ],
)  # fmt: skip
def test_as_flux_submit(options):
    submit = SubmitCmd("flux submit")
    expected = submit.init_jobspec(submit.get_parser().parse_args([*options.split(), "true"]))
    found = asked(*options.split())
    assert found["resources"] == expected.jobspec["resources"]
    duration = found["attributes"]["system"]["duration"]
    assert duration == expected.jobspec["attributes"]["system"]["duration"]


@pytest.mark.parametrize("setattr", ["a.b=1", "user.c", "d=x", "^system.e={file}", "^f={file}"])
def test_attributes_as_of_flux_submit(setattr, tmp_path):
    file = tmp_path / "value.json"
    file.write_text('{"matlab": 2}')
    option = f"--setattr={setattr.format(file=file)}"
    submit = SubmitCmd("flux submit")
    expected = submit.init_jobspec(submit.get_parser().parse_args([option, "true"])).attributes
    found = asked(option)["attributes"]
    for kind in expected:
        added = {key: value for key, value in expected[kind].items() if key in "abcdef"}
        assert {**found[kind], **added} == found[kind]
    with pytest.raises(ValueError, match="No such file"):
        asked(f"--setattr=^a={tmp_path}/other")


@pytest.mark.parametrize(
    "options, text",
    [
        ("-N2 -n1", "1 tasks cannot be spread"),
        ("-n1 -x", "--exclusive needs a number of nodes"),
        ("-n2 --cores=4", "exclude -n, -c and -g"),
        ("-g1 -N1 --gpus-per-node=4", "exclude -n, -c and -g"),
        ("-N1 --tasks-per-node=4 --tasks-per-core=2", "exclude each other"),
        ("--gpus-per-node=4", "--gpus-per-node needs a number of nodes"),
        ("--tasks-per-node=4", "must specify node or core count"),
        ("-N3 --cores=4", "evenly divisible"),
    ],
)
def test_contradictions(options, text):
    with pytest.raises(ValueError, match=text):
        asked(*options.split())
