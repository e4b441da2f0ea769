# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.importer, flux.memoized_property, flux.conf_builtin, flux.uri."""

import sys

import bindings_instance
import pytest

from flux.conf_builtin import conf_builtin_get
from flux.importer import import_path, import_plugins
from flux.memoized_property import memoized_property
from flux.uri import FluxURIResolver, JobURI


def test_importing_plugins(tmp_path):
    package = tmp_path / "some_plugins"
    package.mkdir()
    (package / "one.py").write_text("VALUE = 1\n")
    assert import_path(str(package / "one.py")).VALUE == 1
    path = list(sys.path)
    found = import_plugins("some_plugins", [str(tmp_path)])
    assert {name: module.VALUE for name, module in found.items()} == {"one": 1}
    assert import_plugins("no_such_plugins") == {} and sys.path == path
    (package / "two.py").write_text("import no_such_module\n")
    with pytest.raises(ImportError, match="failed to import two plugin"):
        import_plugins("some_plugins", [str(tmp_path)])
    with pytest.raises(FileNotFoundError):
        import_path(str(tmp_path / "no.py"))


def test_a_memoized_property():
    class Counter:
        made = 0

        @memoized_property
        def number(self):
            Counter.made += 1
            return Counter.made

    one, other = Counter(), Counter()
    assert [one.number, one.number, other.number] == [1, 1, 2]
    with pytest.raises(AttributeError):
        one.number = 3


def test_what_is_built_in():
    assert conf_builtin_get("rc1_path") == conf_builtin_get("rc1_path", which="intree")
    with pytest.raises(ValueError, match="No builtin config value for 'nosuch'"):
        conf_builtin_get("nosuch")
    with pytest.raises(ValueError, match="which must be"):
        conf_builtin_get("rc1_path", which="x")


def test_uris():
    near, far = JobURI("local:///a/b", remote_hostname="h"), JobURI("ssh://u@h/a")
    assert (near.remote, near.local, str(near)) == ("ssh://h/a/b", "local:///a/b", "local:///a/b")
    assert (far.remote, far.local) == ("ssh://u@h/a", "local:///a")
    with pytest.raises(ValueError, match="valid scheme"):
        JobURI("x")
    with pytest.raises(ValueError, match="Cannot convert"):
        JobURI("foo://x").remote  # noqa: B018
    resolver = FluxURIResolver()
    assert str(resolver.resolve("local:///x")) == "local:///x"
    assert str(resolver.resolve("ssh://h/x?local")) == "local:///x"
    with pytest.raises(NotImplementedError, match="zork"):
        resolver.resolve("zork:1")
    with pytest.raises(ValueError, match="not a valid Flux jobid"):
        resolver.resolve("xx!!")


def test_the_uri_of_a_job(monkeypatch):
    instance = bindings_instance.make("kvs", "job-list")
    monkeypatch.setattr("flux.Flux", lambda: instance.handle)
    known = {1: {"annotations": {"user": {"uri": "ssh://h/x"}}}, 2: {}}

    class Answer:
        def __init__(self, id):
            self.id = int(id)

        def get_job(self):
            if self.id not in known:
                raise FileNotFoundError
            return known[self.id]

    monkeypatch.setattr("flux.uri.job_list_id", lambda h, id, attrs: Answer(id))
    resolve = FluxURIResolver().resolve
    assert str(resolve("1")) == str(resolve("jobid:1")) == "ssh://h/x"
    assert str(resolve("jobid:1?local")) == "local:///x"
    with pytest.raises(ValueError, match="URI not found for job 2"):
        resolve("2")
    with pytest.raises(ValueError, match="jobid 3 not found"):
        resolve("3")
    instance.stop()
