# SPDX-License-Identifier: LGPL-3.0-or-later
"""Attributes, configuration, the module path and the log's format: the broker's plain functions."""

import errno
import os

import pytest
from in_process import refused

from flux_embedded.broker.attrs import AttrTable
from flux_embedded.broker.logring import LogRing
from flux_embedded.broker.process import command_environment
from flux_engine.formats import config
from flux_engine.modules import pymodule


def test_settings_merge_key_by_key_in_order():
    merged = {}
    for setting in (
        "a.b=1", "a.c=[1, 2]", "word=bare", 'quoted="x y"', "flag=true", "a.b=2", 't={"x": 1}', "u={x = 1}",
        "t.y=2.5",
    ):  # fmt: skip
        merged = config.merge(merged, config.parse_setting(setting))
    assert merged == {
        "a": {"b": 2, "c": [1, 2]}, "word": "bare", "quoted": "x y", "flag": True, "t": {"x": 1, "y": 2.5},
        "u": "{x = 1}",
    }  # fmt: skip
    assert list(config.merge({"b": 1}, {"a": 2})) == ["b", "a"]
    # A value cannot smuggle in other keys.
    assert config.parse_setting("a=1\nb=2") == {"a": "1\nb=2"}


def test_a_date_with_a_time_is_read_as_by_a_real_broker():
    stamp = {"x": {"iso-8601-ts": "2030-01-07T08:00:00Z"}}
    for text in ("2030-01-07T08:00:00Z", "2030-01-07T08:00:00", "2030-01-07 08:00:00.5+01:00"):
        assert config.parse_toml(f"x = {text}", "here") == stamp
    with pytest.raises(config.ConfigError):
        config.parse_toml("x = 1969-01-07T08:00:00Z", "here")


@pytest.mark.parametrize(
    "parse, text, said",
    [
        *((config.parse_setting, text, "expected KEY=VALUE") for text in ("a..b=1", "=1", "a b=1", "a.'b'=1", ".=1")),
        (config.parse_setting, "x=1979-05-27", "x: only strings, numbers"),
        (config.parse_toml, "a = 1\nb.c = nan", r"^here: b\.c: only strings, numbers"),
        (config.parse_toml, "[a]\nx = [[1], [1, 'b']]", "here: array type mismatch"),
    ],
)  # fmt: skip
def test_values_that_are_refused(parse, text, said):
    with pytest.raises(config.ConfigError, match=said):
        parse(text, *(["here"] if parse is config.parse_toml else []))


def test_files(tmp_path):
    a, d, other = (tmp_path / name for name in ("a.toml", "d.toml", "a.json"))
    (tmp_path / "b.toml").write_text("[x]\nb = 1\n")
    a.write_text("[x]\na = 1\nb = 2\n")
    (tmp_path / "other").write_text("not read")
    assert config.load_path(str(tmp_path)) == {"x": {"a": 1, "b": 1}}
    assert config.parse_setting(str(a)) == {"x": {"a": 1, "b": 2}}
    # flux batch --conf writes JSON. In a directory only TOML is read.
    other.write_text('{"x": [1, "a"]}')
    assert config.load_path(str(other)) == {"x": [1, "a"]}
    assert config.load_path(str(tmp_path)) == {"x": {"a": 1, "b": 1}}
    for path, data, error in (
        (d, b"junk=", ""),
        (d, b"\xff", ""),
        (other, b'{"x": 1', ".*parse error"),
        (other, b"[1]", ".*an object"),
        (other, b'{"x": NaN}', ".*can be used"),
    ):
        path.write_bytes(data)
        with pytest.raises(config.ConfigError, match=f"{path.name}{error}"):
            config.load_path(str(path))
    with pytest.raises(config.ConfigError, match="nosuch: No such file or directory"):
        config.parse_setting(str(tmp_path / "nosuch"))


def test_attributes():
    attrs = AttrTable()
    seen = []
    attrs.watch("log-stderr-level", seen.append)
    attrs.set_at_start("log-stderr-level", "3")
    attrs.set("log-stderr-level", "4")
    assert attrs.get_int("log-stderr-level") == 4 and seen == ["3", "4"]
    with pytest.raises(ValueError, match="foo: unknown attribute"):
        attrs.set_at_start("foo", "bar")
    with pytest.raises(ValueError, match="size: attribute may not be set"):
        attrs.set_at_start("size", "3")
    for value in ("8", "x", "-2"):
        assert "invalid level" in refused(errno.EINVAL, attrs.set, "log-stderr-level", value)
    assert not attrs.is_true("broker.module-nopanic")
    attrs.set("broker.module-nopanic", "1")
    assert attrs.is_true("broker.module-nopanic")


def test_module_search_path():
    environ = {"FLUX_MODULE_PATH_PREPEND": "/p:/q", "FLUX_MODULE_PATH": "/m::/b"}
    assert pymodule.search_path(environ, ["/b", "/c"]) == ["/p", "/q", "/b", "/c", "/m"]
    assert pymodule.search_path({}, ["/b"]) == ["/b"]


def test_finding_modules(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for directory in (one, two, two / "sub"):
        directory.mkdir()
    (two / "m.py").write_text("")
    (two / "sub" / "deep.py").write_text("")
    dirs = [str(one), str(two)]
    assert pymodule.find("m", dirs) == ("m", str(two / "m.py"), False)
    (one / "m.py").write_text("")
    assert pymodule.find("m", dirs).path == str(one / "m.py")
    assert pymodule.find("kvs", dirs, ("kvs",)) == ("kvs", "builtin", True)
    assert pymodule.find(str(two / "m.py"), []).name == "m"
    for name in ("deep", "m.py", "nosuch"):
        with pytest.raises(FileNotFoundError, match="module not found in search path"):
            pymodule.find(name, dirs)
    (one / "c.so").write_text("")
    with pytest.raises(OSError, match="compiled modules need a real Flux"):
        pymodule.find(str(one / "c.so"), [])


def test_log_levels_ring_and_file(tmp_path, capfd):
    attrs = AttrTable()
    attrs.set_at_start("log-ring-size", "3")
    attrs.set_at_start("log-filename", str(tmp_path / "log"))
    ring = LogRing(attrs, lambda: 1.0)
    for level in (3, 4, 7):
        ring.append(level, "x", f"level {level}")
    ring.append(99, "x", "")
    assert [entry.text for entry in ring.entries()] == ["level 4", "level 7", ""]
    assert capfd.readouterr().err == "Jan 1 00:00:01.000000 UTC 1970 x.err[0]: level 3\n"
    assert len((tmp_path / "log").read_text().splitlines()) == 4
    attrs.set("log-stderr-level", "3")
    attrs.set("log-stderr-level", "-1")
    ring.append(4, "x", "dropped")
    ring.append(3, "x", "kept, and not shown")
    assert ring.entries()[-1].text == "kept, and not shown" and capfd.readouterr().err == ""
    attrs.set("log-filename", "")
    ring.append(3, "x", "not in the file")
    assert "not in the file" not in (tmp_path / "log").read_text()
    ring.close()


def test_environment_of_commands(broker):
    ctx = broker.ctx
    ctx.attrs.define("local-uri", "local:///x")
    ctx.environ = {
        "PATH": "/bin", "FLUX_JOB_ID": "f1", "FLUX_TASK_RANK": "0", "FLUX_MODULE_PATH": "/extra", "HOME": "/h",
    }  # fmt: skip
    environ = command_environment(ctx)
    assert environ["FLUX_URI"] == "local:///x" and environ["HOME"] == "/h"
    assert environ["FLUX_MODULE_PATH"].endswith(":/extra")
    assert not {"FLUX_JOB_ID", "FLUX_TASK_RANK"} & set(environ)
    assert os.path.exists(os.path.join(environ["PATH"].split(":")[0], "flux"))
    ctx.environ = environ  # an instance in an instance: nothing twice
    assert command_environment(ctx) == environ
