# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a jobspec says beside resources: whatever a user writes, it is read or it is nothing."""

import types

from peers import jobspec

from flux.scheduler.attributes import SystemAttributes


def test_values_of_other_types():
    """A name that is a number names a reservation of that name (``--setattr`` reads JSON);
    elsewhere what is of another type counts as missing."""
    spec = jobspec(1, queue=7, bank=["physics"], reservation=17, licenses=None)
    spec["attributes"]["system"]["constraints"] = "gpu"
    found = SystemAttributes.from_jobspec(spec)
    assert (found.queue, found.bank, found.constraints) == (None, None, None)
    assert found.reservation == "17"
    assert found.get("licenses", {}) == {}, "null is as good as nothing"
    assert SystemAttributes.from_jobspec(jobspec(1, reservation=None)).reservation is None


def test_of_a_job_whose_pool_keeps_no_jobspec():
    def job(request):
        return types.SimpleNamespace(resource_request=request)

    asks = types.SimpleNamespace(jobspec=jobspec(1, queue="batch"))
    assert SystemAttributes.of_job(job(asks)).queue == "batch"
    assert SystemAttributes.of_job(job(object())).queue is None
    assert SystemAttributes.of_job(job(None)).queue is None


def test_names_of_users_cannot_change_a_terminal_or_a_log():
    odd = {"bank": "physics\x1b[2J\nroot", "queue": "a\x07", "reservation": "b\x9b"}
    attributes = SystemAttributes.from_jobspec({"attributes": {"system": odd}})
    assert attributes.bank == "physics?[2J?root"
    assert (attributes.queue, attributes.reservation) == ("a?", "b?")
