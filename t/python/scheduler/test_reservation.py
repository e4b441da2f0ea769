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
    again = Reservation.from_dict(stored, NOW + 99999)
    assert again.to_dict() == stored
    assert again.window_at(NOW + 86400) == one.window_at(NOW + 86400)


def test_a_bare_toml_date_has_lost_its_offset_and_is_refused():
    with pytest.raises(ValueError, match='write it in quotes, start = "2026-12-01T08:00:00"'):
        make(start={"iso-8601-ts": "2026-12-01T08:00:00Z"})


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"name": "a b"}, "reservation name 'a b' is invalid"),
        ({"name": ...}, "reservation name None is invalid"),
        ({"name": "x" * 65}, "is invalid: expected letters"),
        ({"start": ...}, "reservation dat: start is missing"),
        ({"duration": ...}, "reservation dat: duration is missing"),
        ({"duration": 0}, "duration=0 is invalid"),
        ({"duration": True}, "duration=True: expected"),
        ({"duration": float("nan")}, "duration=nan: expected"),
        ({"start": "soon"}, "start='soon' is invalid"),
        ({"zone": "Nowhere/Else"}, "time zone 'Nowhere/Else' is not known"),
        ({"every": "1h"}, "duration 4h is longer than every=1h"),
        ({"every": 7}, "every=7 is invalid"),
        ({"nodes": 0}, "nodes=0: expected"),
        ({"nodes": True}, "nodes=True: expected"),
        ({"nodes": "4"}, "nodes='4': expected"),
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
        (
            {"colour": "red"},
            "unknown key 'colour': expected at_end, banks, duration, every, hosts, nodes, pin",
        ),
    ],
)
def test_mistakes_are_refused(changes, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        make(**changes)


def test_hosts_and_their_requirements_are_both_asked_of_the_pool():
    both = make(nodes=..., hosts="n[0-5]", requires={"properties": ["big"]})
    assert both.constraint == {"and": [{"hostlist": ["n[0-5]"]}, {"properties": ["big"]}]}


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
