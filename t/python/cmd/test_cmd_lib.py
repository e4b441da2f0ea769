# SPDX-License-Identifier: LGPL-3.0-or-later
"""The shared parts of the commands, without an instance."""

import subprocess
import sys

import pytest

from flux_embedded.cmd.lib import Formats
from flux_engine.command.errors import error_text
from flux_engine.command.options import Parser


def test_error_texts():
    assert error_text(OSError(2, "no such job")) == "no such job"
    assert error_text(FileNotFoundError(2, "gone", "x.json")) == "gone: 'x.json'"
    assert error_text(ValueError("odd")) == "odd"


@pytest.mark.parametrize("status", [1, 2])
def test_wrong_usage_ends_with_the_status_of_the_real_command(status, capsys):
    parser = Parser("flux-x", status=status)
    parser.command("do", print, "do it")
    for argv in ([], ["nosuch"], ["do", "--nosuch"]):
        with pytest.raises(SystemExit) as info:
            parser.run(argv)
        assert info.value.code == status
        assert "flux-x" in capsys.readouterr().err


def test_formats_of_the_user(monkeypatch, tmp_path):
    (tmp_path / "flux").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "flux" / "flux-x.toml"
    file.write_text('[list.formats.mine]\nformat = "{name:<4}|"\n')
    formats = Formats("flux-x", {"default": ("the first", "{name}")}, "list")
    assert formats.layout("mine", {"name": "NAME"}).header() == "NAME|"
    assert formats.layout("default", {"name": "NAME"}).header() == "NAME"


POSTPONED = """
import sys
from flux_embedded.cmd.later import postpone

postpone()
import flux.util

print({"yaml.reader", "flux.utils.parsedatetime.warns"} & sys.modules.keys())
handlers = flux.util.UtilConfig.extension_handlers
print(handlers[".yaml"]("a: [1]"), flux.util.parse_datetime("1970-01-02").day)
from inspect import getdoc
print(getdoc(len)[:6], issubclass(flux.util.yaml.scanner.ScannerError, Exception))
import yaml, inspect
print(yaml.__file__ == flux.util.yaml.__file__ and inspect.getdoc is getdoc)
"""


def test_modules_that_few_commands_use_are_imported_when_used():
    command = [sys.executable, "-c", POSTPONED]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines() == ["set()", "{'a': [1]} 2", "Return True", "True"]
