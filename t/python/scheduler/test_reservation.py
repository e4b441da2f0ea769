# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations as data: valid and refused requests, and the members of the group."""

import re

import pytest

from flux.scheduler.reservations.reservation import Applicant, Reservation
from flux.scheduler.site_policy.tables import QueueNames

NOW = 1795600000.0
LEAST = {"name": "dat", "start": "+1h", "duration": "4h", "nodes": 4, "zone": "UTC"}


def make(**changes):
    entry = {**LEAST, **changes}
    return Reservation.from_dict({k: v for k, v in entry.items() if v is not ...}, NOW)


def test_a_stored_reservation_reads_back():
    one = make(every="1d", users=["root", 1001], queues="debug", at_end="run", pin=True)
    stored = one.to_dict()
    assert stored["users"] == [0, 1001]
    assert stored["queues"] == ["debug"]
    both = make(nodes=..., hosts="n[0-5]", requires={"properties": ["big"]})
    assert both.constraint == {"and": [{"hostlist": ["n[0-5]"]}, {"properties": ["big"]}]}
    again = Reservation.from_dict(stored, NOW + 99999)
    assert again.to_dict() == stored
    assert again.window_at(NOW + 86400) == one.window_at(NOW + 86400)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"name": "a b"}, "reservation name 'a b' is invalid"),
        ({"name": ...}, "reservation name None is invalid"),
        ({"name": "x" * 65}, "is invalid: expected letters"),
        *[({key: ...}, f"reservation dat: {key} is missing") for key in ("start", "duration")],
        ({"duration": 0}, "duration=0 is invalid"),
        *[({"duration": value}, f"duration={value}: expected") for value in (True, float("nan"))],
        ({"start": "soon"}, "start='soon' is invalid"),
        # A bare date of TOML has lost its offset.
        (
            {"start": {"iso-8601-ts": "2026-12-01T08:00:00Z"}},
            'write it in quotes, start = "2026-12-01T08:00:00"',
        ),
        ({"zone": "Nowhere/Else"}, "time zone 'Nowhere/Else' is not known"),
        ({"every": "1h"}, "duration 4h is longer than every=1h"),
        ({"every": 7}, "every=7 is invalid"),
        *[({"nodes": value}, f"nodes={value!r}: expected") for value in (0, True, "4")],
        ({"nodes": ...}, "the resources are missing: give nodes, hosts or requires"),
        ({"hosts": "n[1-4]"}, "nodes and hosts exclude each other"),
        ({"nodes": ..., "hosts": "n[1-"}, "hosts='n[1-': expected"),
        ({"nodes": ..., "hosts": ""}, "hosts='': expected"),
        ({"requires": "gpu"}, "requires='gpu': constraint must be an object"),
        (
            {"requires": {"property": ["gpu"]}},
            "requires={'property': ['gpu']}: unknown constraint operator(s): ['property']",
        ),
        ({"requires": {"properties": "gpu"}}, "'properties' operand must be a list"),
        ({"requires": {"not": [{"hostlist": ["n[1-"]}]}}, "invalid hostlist 'n[1-'"),
        ({"at_end": "kill"}, "at_end='kill': expected 'cancel' or 'run'"),
        ({"pin": "yes"}, "pin='yes': expected"),
        ({"users": ["no-such-user"]}, "users: there is no user 'no-such-user'"),
        ({"users": [-1]}, "users: there is no user '-1'"),
        ({"users": [True]}, "users=[True]: expected"),
        ({"users": {}}, "users={}: expected a list of names"),
        ({"queues": [""]}, "queues=['']: expected"),
        ({"colour": "red"}, "unknown key 'colour': expected at_end, banks, duration, every, hosts, nodes, pin"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(changes, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        make(**changes)


def test_the_group():
    names = QueueNames()
    maintenance = make()
    assert maintenance.is_maintenance
    assert not maintenance.admits(Applicant(0, None, None), names)
    dedicated = make(users=[1001], queues=["batch", "debug"])
    assert dedicated.admits(Applicant(1001, "debug", None), names)
    assert not dedicated.admits(Applicant(1001, None, None), names)
    assert not dedicated.admits(Applicant(1002, "debug", None), names)
    assert make(banks="physics").admits(Applicant(7, None, "physics"), names)
