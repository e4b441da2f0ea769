# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.util beside durations: trees, configuration, files, commands."""

import argparse
import errno
import logging

import pytest

from flux import util


def test_a_tree(capsys):
    root = util.Tree("root", combine_children=True)
    root.append("a").append("a1")
    for _ in range(3):
        root.append("b")
    assert root.append("a") is root.children[0]
    root.add("b")
    root.render()
    root.render(style="ascii", level=0)
    util.Tree("x" * 300, prefix="P").render()
    box, ascii_root, cut = capsys.readouterr().out.rsplit("\n", 3)[:3]
    assert box == "root\n├── 2*[a]\n│   └── a1\n├── 3*[b]\n└── b"
    assert ascii_root == "root" and cut.startswith("P xxx") and cut.endswith("x+")
    root.render(skip_root=True)
    assert capsys.readouterr().out.startswith("2*[a]\n└── a1\n")


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name in ("home", "site"):
        (tmp_path / name / "flux").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path}/site:/nosuch")
    return tmp_path


def test_configuration_of_scripts(files, monkeypatch):
    assert util.xdg_searchpath("a")[:2] == [files / "home/flux/a", files / "site/flux/a"]
    (files / "home/flux/tool.toml").write_text('a = 1\n[sub.formats.z]\nformat = "{z}"\n')
    (files / "site/flux/tool.json").write_text('{"a": 2, "b": {"c": 3}}')
    conf = util.UtilConfig("tool", initial_dict={"b": {"d": 4}}).load()
    assert (conf.a, conf.b) == (1, {"c": 3, "d": 4})
    with pytest.raises(KeyError):
        getattr(conf, "nope")  # noqa: B009  not a name
    sub = util.UtilConfig("tool", subcommand="sub").load()
    assert sub.get_format_string("z") == "{z}" and sub.get_format_string("{x}") == "{x}"
    with pytest.raises(ValueError, match="No such format no .Did you mean '{no}'"):
        sub.get_format_string("no")
    monkeypatch.setenv("TOOL_SUB_FORMAT_DEFAULT", "{env}")
    assert sub.get_format_string("default") == "{env}"
    for formats in (3, {"a": 3}, {"a": {}}, {"a": {"format": 3}}):
        with pytest.raises(ValueError, match="PATH"):
            sub.validate_formats("PATH", formats)
    sub.validate_formats("PATH", {"a": {"format": "x"}})
    for name, text in (("bad.toml", "a ="), ("bad.json", "{")):
        (files / "home/flux" / name).write_text(text)
        with pytest.raises(ValueError, match=name):
            util.UtilConfig("bad").load()
        (files / "home/flux" / name).unlink()


def test_help_in_the_style_of_the_commands():
    parser = argparse.ArgumentParser(prog="p", formatter_class=util.help_formatter())
    parser.add_argument("-n", "--name", metavar="N", help="the name")
    parser.add_argument("--long", action="store_true", help="more")
    text = parser.format_help()
    assert "  -n, --name=N  the name\n" in text and "      --long    more\n" in text


def test_the_main_function_of_a_script(caplog):
    def fails():
        raise FileNotFoundError(errno.ENOENT, "gone", "/f")

    for function, code in (
        (lambda: None, 0),
        (fails, 1),
        (lambda: (_ for _ in ()).throw(SystemExit(3)), 3),
    ):
        with pytest.raises(SystemExit) as info:
            util.CLIMain(logging.getLogger("tool"))(function)
        assert info.value.code == code
    assert "gone: '/f'" in caplog.text


def test_payloads_and_topics():
    assert [util.encode_payload(p) for p in (None, "a", b"b", {"c": 1})] == [
        None,
        b"a",
        b"b",
        b'{"c": 1}',
    ]
    assert [util.encode_topic(t) for t in ("a", b"b")] == [b"a", b"b"]
    with pytest.raises(TypeError):
        util.encode_payload({1})
    with pytest.raises(TypeError):
        util.encode_topic(3)
    with pytest.raises(OSError) as info:
        util.encode_topic(None)
    assert info.value.errno == errno.EINVAL


def test_errors_have_the_text_of_the_peer():
    class Answer:
        text = "no such thing"

        def error_string(self):
            return self.text

        @util.check_future_error
        def get(self):
            raise OSError(errno.ENOENT, "ENOENT")

    with pytest.raises(FileNotFoundError, match="no such thing"):
        Answer().get()
    silent = Answer()
    silent.text = None
    with pytest.raises(FileNotFoundError, match="ENOENT"):
        silent.get()
