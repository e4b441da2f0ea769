# SPDX-License-Identifier: LGPL-3.0-or-later
"""The KVS under random requests, against a model. Payloads of any form: test_service_doors.py."""

import copy

import hypothesis.strategies as st
from hypothesis import given, settings
from in_process import InProcess

from flux_embedded.services.kvs import entries

keys = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)
operations = st.one_of(
    st.tuples(st.sampled_from(["put", "append"]), keys, st.text("xy", max_size=3)),
    st.tuples(st.sampled_from(["unlink", "mkdir"]), keys),
).map(list)


class Model:
    """The same as nested dicts, one operation after the other, by the words of the service's table."""

    def __init__(self):
        self.root = {}

    def commit(self, ops):
        """Whether it would succeed; if not, nothing changed."""
        before = copy.deepcopy(self.root)
        if all(self._one(*op) for op in ops):
            return True
        self.root = before
        return False

    def _one(self, verb, key, text=None):
        *way, name = key.split(".")
        where = self.root
        for part in way:
            if not isinstance(where.get(part), dict):
                if verb == "unlink":
                    return True
                where[part] = {}
            where = where[part]
        old = where.get(name)
        if verb == "put":
            where[name] = text
        elif verb == "append":
            if isinstance(old, dict):
                return False
            where[name] = (old or "") + text
        elif verb == "unlink":
            where.pop(name, None)
        elif not isinstance(old, dict):
            where[name] = {}
        return True

    def flat(self, where=None, prefix=""):
        for name, child in (self.root if where is None else where).items():
            if isinstance(child, dict):
                yield prefix + name, None
                yield from self.flat(child, f"{prefix}{name}.")
            else:
                yield prefix + name, child


@settings(max_examples=150)
@given(st.lists(st.lists(operations, max_size=4), max_size=12), keys)
def test_against_a_model(commits, watched):
    instance = InProcess(services=["kvs"])
    try:
        h = instance.handle
        model = Model()
        tree = instance.ctx.kvs
        told = [None]
        tree.watch(watched, lambda: told.append(dict(model.flat()).get(watched)))
        seq = 0
        for ops in commits:
            expected = model.commit(ops)
            try:
                seq += 1
                assert h.rpc("kvs.commit", {"ops": ops}).get() == {"rootseq": seq}
                assert expected
            except IsADirectoryError:
                seq -= 1
                assert not expected
            found = list(entries(tree.root, ""))
            there = [[name, "dir" if text is None else "val", text] for name, text in model.flat()]
            assert sorted(found) == sorted(there)
            assert told[-1] == dict(model.flat()).get(watched)
    finally:
        instance.stop()
