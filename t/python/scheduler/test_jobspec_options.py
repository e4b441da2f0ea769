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
    ["-n4 -c2 -g1 -t 90m", "-N2 -x -n2", "-N2 --cores=8 --gpus-per-node=2"],
)
def test_as_flux_submit(options):
    submit = SubmitCmd("flux submit")
    expected = submit.init_jobspec(submit.get_parser().parse_args([*options.split(), "true"]))
    found = asked(*options.split())
    assert found["resources"] == expected.jobspec["resources"]
    duration = found["attributes"]["system"]["duration"]
    assert duration == expected.jobspec["attributes"]["system"]["duration"]


def test_attributes_as_of_flux_submit(tmp_path):
    file = tmp_path / "value.json"
    file.write_text('{"matlab": 2}')
    options = ["--setattr=a.b=1", "--setattr=user.c", f"--setattr=^f={file}", "--requires=x|y"]
    found = asked(*options)["attributes"]
    assert found["system"]["a"] == {"b": 1} and found["user"] == {"c": 1}
    assert found["system"]["f"] == {"matlab": 2} and "environment" not in found["system"]
    assert found["system"]["constraints"] == {"or": [{"properties": ["x"]}, {"properties": ["y"]}]}


@pytest.mark.parametrize(
    "option, text",
    [("-t=soon", "duration"), ("-nx", "--ntasks"), ("--setattr=^a=/no/file", "No such file")],
)
def test_refusals(option, text):
    with pytest.raises(ValueError, match=f"flux submit would refuse the job: .*{text}"):
        asked(option)
