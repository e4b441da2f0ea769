"""flux modprobe: what it says of the instance's modules is what a real host says."""

import json

import pytest
import shared

import flux.modprobe
from flux_embedded.cmd import modprobe as command


class Args:
    def __init__(self, module):
        self.module = module


def recorded():
    lines = shared.optional_jsonl("golden/cli-misc.jsonl")
    return [
        pytest.param(line, id=line["cmd"])
        for line in lines
        if line.get("cmd", "").startswith("flux modprobe show")
    ]


@pytest.fixture
def instance(monkeypatch):
    """Enough of a handle: rank 0 of one, without a configuration."""

    class Handle:
        def conf_get(self, key=None, default=None, update=False):
            return default if key else {}

        def get_rank(self):
            return 0

        def attr_get(self, name):
            return {"rank": "0", "size": "1"}[name]

    monkeypatch.setattr(flux.modprobe.flux, "Flux", Handle)


@pytest.mark.parametrize("line", shared.recorded_cases(recorded()))
def test_entries(line, instance, capsys):
    command.show(Args(line["cmd"].split()[3]))
    assert json.loads(capsys.readouterr().out) == json.loads(line["stdout"])
