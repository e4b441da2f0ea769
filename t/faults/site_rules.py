# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tables of a site's configuration, and the invariants that they require.

`SiteRules.started` is called for each job that starts, with the holdings of all jobs at that time:

- no start exceeds a limit that the job is in;
- no licence is oversold;
- if nodes are shared within a bank, no job starts beside one of another bank;
- a job that requires a placement is in no more racks than allowed, or each segment of it in one.

It counts allocations and frees itself, without data from the scheduler.
"""

from types import SimpleNamespace

from books import ranks_of

from flux.scheduler.testing import make_R
from flux.simulate.checking import Violation
from flux.simulate.site_check import groups_of, misplaced
from flux_engine.formats import idset

#: The nodes of the driver's instance.
NODES_R = make_R(4, hosts="node[0-3]")

#: Banks of jobs.
BANKS = ("red", "blue")

#: Maximum number of licences that a job requests.
MOST_LICENSES = 2

#: Placements of jobs.
PLACEMENTS = [
    {"level": "rack"},
    {"level": "rack", "mode": "required", "max": 2},
    {"level": "rack", "mode": "required", "segment": 2},
    {"level": "rack", "mode": "required", "segment": 1, "max": 1},
    {"level": "rack", "mode": "preferred", "wait": 15},
    {"level": "rack", "mode": "preferred", "segment": 2, "wait": 60},
    {"level": "rack", "mode": "preferred"},
]


def limit(per="bank", **more):
    """A limit of nodes, cores, gpus or jobs, with the further keys order and soft."""
    kinds = {key: more.pop(key) for key in ("nodes", "cores", "gpus", "jobs") if key in more}
    return {"per": per, "max": kinds, **more}


def racks(**groups):
    return {"rack": {"groups": groups}}


def budget(hours):
    return {"bank": {"per": "bank", "period": "day", "max": {"core-hours": hours}}}


IN_BANKS = {"all": {"mode": "bank"}}
FAIRSHARE = {"half-life": "1m", "period": "5s", "banks": {"red": 2}}
TWO_RACKS = racks(a="node[0-1]", b="node[2-3]")

#: The tables that a history may put in force.
TABLES = [
    {},
    {"limits": {"bank": limit(nodes=2)}},
    {"limits": {"bank": limit(nodes=3, cores=6), "all": limit("instance", jobs=4, gpus=5)}, "licenses": {"matlab": 3}},
    {
        "limits": {"strict": limit(cores=8, order="strict"), "soft": limit("instance", jobs=2, soft=True)},
        "licenses": {"matlab": {"total": 4, "reserved": 2}},
    },
    {"licenses": {"matlab": {"total": 2, "plan": True}}},
    {"sharing": IN_BANKS},
    {"sharing": IN_BANKS, "limits": {"bank": limit(nodes=2)}, "licenses": {"matlab": 3}},
    {"topology": TWO_RACKS},
    {"topology": racks(a="node[0-2]", b="node3")},
    {"topology": racks(a="node[0,3]", b="node2"), "sharing": IN_BANKS, "limits": {"bank": limit(nodes=3)}},
    {"fairshare": FAIRSHARE, "limits": {"bank": limit(nodes=3)}, "licenses": {"matlab": 2}},
    {"budgets": budget(0.5)},
]  # fmt: skip

#: Indices in `TABLES` of those with all features, for ``--all-tables``.
EVERYTHING = (len(TABLES), len(TABLES) + 1)
TABLES += [
    {
        "limits": {"bank": limit(**most), "all": limit("instance", **jobs)},
        "budgets": budget(hours),
        "licenses": {"matlab": {"total": 3, "plan": plan}},
        "sharing": IN_BANKS,
        "topology": TWO_RACKS,
        "fairshare": FAIRSHARE,
    }
    for most, jobs, hours, plan in (
        ({"nodes": 3}, {"jobs": 5}, 4, True),
        ({"cores": 6}, {"gpus": 5}, 1, False),
    )
]
#: Jobs share some nodes, whose property comes and goes, with no other.
TABLES += [
    {
        "sharing": {"fast": {"mode": "node", "properties": ["fast"]}},
        "limits": {"bank": limit(cores=6, order="strict")},
        "budgets": budget(1),
        "topology": TWO_RACKS,
    }
]


class SiteRules:
    """The restrictions of the tables that the scheduler may have: two sets while the configuration is reloaded."""

    def __init__(self, tables=None):
        self.tables = [tables or {}]

    def started(self, jobid, jobs, held):
        """A job has started, which one of the tables in force must allow (Violation).

        Args:
            jobs (dict): by id, jobs of the history
            held (dict): by id, the holdings of all jobs that run, sets of (rank, kind, number)
        """
        wrong = [self._wrong(tables, jobid, jobs, held) for tables in self.tables]
        if all(wrong):
            raise Violation(wrong[0])

    def allows(self, jobid, jobs, held, most=None):
        """Whether all tables in force allow a pending job to start now; `most`: the most that it would hold of nodes,
        cores, gpus."""
        return not any(self._wrong(tables, jobid, jobs, held, most) for tables in self.tables)

    def may_be_whole(self):
        """Whether a job may be given whole nodes that has not asked for them."""
        return any("fast" in tables.get("sharing", {}) for tables in self.tables)

    def _wrong(self, tables, jobid, jobs, held, most=None):
        """The rule that a start breaks, in words; None: none."""
        job = jobs.get(jobid)
        if job is None or "bank" not in job:
            return None
        if "memory" in job and most is not None:
            return "it depends on where it is put"
        for name, entry in tables.get("limits", {}).items():
            if entry.get("soft"):
                continue
            bank = job["bank"] if entry["per"] == "bank" else None
            together = [one for one in held if bank in (None, jobs.get(one, {}).get("bank"))]
            used = count(held[other] for other in together)
            if most is not None:  # it does not hold resources yet
                used = {what: used[what] + most[what] for what in used}
            for what, limited in entry["max"].items():
                if used[what] > limited:
                    return f"job {jobid}: limit {name}: {used[what]} of {limited} {what} ({bank})"
        if "budgets" in tables and most is not None:
            return "it depends on what was used"
        if "sharing" in tables:
            if most is not None:
                return "it depends on where it is put"
            mine = ranks_of(held[jobid])
            for other, resources in held.items():
                if jobs.get(other, {}).get("bank") != job["bank"]:
                    shared = mine & ranks_of(resources)
                    if shared and "all" in tables["sharing"]:
                        return f"job {jobid} is on ranks {shared} beside job {other}, a stranger"
        wanted = job.get("licenses", 0)
        entry = tables.get("licenses", {}).get("matlab")
        if wanted and entry is not None:
            total = entry if isinstance(entry, int) else entry["total"] - entry.get("reserved", 0)
            used = sum(jobs.get(other, {}).get("licenses", 0) for other in held)
            if most is not None:
                used += wanted
            if used > total:
                return f"job {jobid}: {used} of {total} licences"
        if "topology" in tables and "placement" in job:
            if most is not None:
                return "it depends on where it is put"
            ranks = idset.text(resource[0] for resource in held[jobid])
            row = SimpleNamespace(placement=job["placement"], submit=0, start=0)
            row.units = lambda: idset.decode(ranks)
            wrong = misplaced(row, groups_of(tables, NODES_R), None, any_node=False)
            return wrong and f"job {jobid}, on ranks {ranks}: {wrong}"
        return None


def count(holdings):
    """The total of some holdings: nodes (each once), cores, gpus, jobs."""
    holdings = list(holdings)
    resources = [resource for held in holdings for resource in held]
    cores, gpus = (sum(one[1] == kind for one in resources) for kind in ("core", "gpu"))
    return {"nodes": len(ranks_of(resources)), "cores": cores, "gpus": gpus, "jobs": len(holdings)}
