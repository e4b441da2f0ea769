# SPDX-License-Identifier: LGPL-3.0-or-later
"""The table of names in doc/reference/bindings.rst is true."""

import fnmatch
import importlib
import os
import re

import pytest

PAGE = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "doc", "reference", "bindings.rst"
)


def rows():
    with open(PAGE, encoding="utf-8") as page:
        table = page.read().split(".. list-table::")[1].split("Differences\n---")[0]
    for row in re.split(r"\n   \* - ", table)[2:]:
        module, names = row.split("\n     - ")[:2]
        yield module.strip("` "), re.findall(r"``([^`]+)``", names)


TABLE = dict(rows())


def test_the_table_was_found():
    assert "BrokerModule" in TABLE["flux.brokermod"] and len(TABLE) > 10


@pytest.mark.parametrize("module", TABLE)
def test_documented_names_exist(module):
    present = vars(importlib.import_module(module))
    for name in TABLE[module]:
        assert fnmatch.filter(present, name), f"{module}.{name}"


#: packages and modules that have more names than a page should list, or belong to other pages
ELSEWHERE = ("flux", "flux.resource", "flux.constants", "flux.modprobe", "flux.jobtap")


@pytest.mark.parametrize("module", [module for module in TABLE if module not in ELSEWHERE])
def test_public_names_are_documented(module):
    public = getattr(importlib.import_module(module), "__all__", ["Flux"])
    assert set(public) <= set(TABLE[module])
