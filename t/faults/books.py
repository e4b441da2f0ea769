# SPDX-License-Identifier: LGPL-3.0-or-later
"""Records of all holdings as plain sets of (rank, type, id): slow, obvious, and unlike the pool.

Also whether a simple request would fit the free resources.
"""

from flux.simulate.checking import Violation
from flux_engine.resource.inventory import Inventory

#: GiB of memory of each node, if memory is counted.
MEMORY = 8


def ids(text):
    """The set an RFC 22 idset names."""
    found = set()
    last = -1
    for part in filter(None, text.strip("[]").split(",")):
        low, _, high = part.partition("-")
        for number in range(int(low), int(high or low) + 1):
            if number <= last:
                raise Violation(f"idset {text!r} does not ascend")
            found.add(number)
            last = number
    return found


def resources_of(R, path="R"):
    """The set of (rank, type, id) in an R, which must be a legal object of RFC 20 (Violation)."""
    try:
        Inventory(R)
    except ValueError as exc:
        raise Violation(f"{path}: {exc}") from None
    found, ranks = set(), set()
    for entry in R["execution"]["R_lite"]:
        here, children = ids(entry["rank"]), entry["children"]
        if not here or here & ranks:
            raise Violation(f"{path}: ranks {entry['rank']!r} empty or named twice")
        if not children.get("core") or "" in children.values():
            raise Violation(f"{path}: ranks {entry['rank']} without a core, or with an empty list")
        ranks |= here
        for kind, text in children.items():
            found |= {(rank, kind, number) for rank in here for number in ids(text)}
    return found


def ranks_of(resources):
    """The ranks of a set of (rank, type, id)."""
    return {resource[0] for resource in resources}


def memory_of(R):
    """{rank: GiB}: the memory of an allocation, if it is counted."""
    amounts = (R.get("scheduling") or {}).get("amounts", {}).get("memory", {})
    return {rank: int(amount[:-1]) for ranks, amount in amounts.items() for rank in ids(ranks)}


class Books:
    """The holdings of all jobs of one instance, of an inventory R."""

    def __init__(self, R):
        self.inventory = resources_of(R, "inventory")
        self.left = set()  # resources of ranks that have left
        self.held = {}  # job id -> set of resources
        self.owner = {}  # resource -> job id
        self.memory = {}  # job id -> {rank: GiB}

    def allocate(self, jobid, R, late=False):
        """Enter an allocation of known resources that no job holds (Violation); of one that was decided earlier (`late`)
        some ranks may have left since."""
        wanted = resources_of(R, f"R of {jobid}")
        if jobid in self.held:
            raise Violation(f"job {jobid} is allocated a second time")
        unknown = wanted - self.inventory
        if late:
            unknown -= self.left
        if unknown:
            found = sorted(unknown)[:5]
            raise Violation(f"job {jobid} was given what the instance does not have: {found}")
        for resource in sorted(wanted & self.owner.keys()):
            owner = self.owner[resource]
            raise Violation(f"{resource} given to job {jobid} is held by job {owner}")
        self.owner.update(dict.fromkeys(wanted, jobid))
        self.held[jobid] = wanted
        self.memory[jobid] = memory_of(R)
        for rank in self.memory[jobid]:
            there = [other for other, held in self.held.items() if rank in ranks_of(held)]
            taken = sum(self.memory[other].get(rank, 0) for other in there)
            if taken > MEMORY:
                raise Violation(f"job {jobid}: {taken} of {MEMORY} GiB of rank {rank} are taken")

    def free(self, jobid, R, final):
        """Take back all or whole ranks of a job's allocation; if `final`, it has to be the rest (Violation)."""
        back = resources_of(R, f"freed R of {jobid}")
        held = self.held.get(jobid)
        if held is None:
            raise Violation(f"job {jobid} holds nothing to free")
        if not back <= held:
            raise Violation(f"job {jobid} frees what it does not hold: {sorted(back - held)[:5]}")
        ranks = ranks_of(back)
        if {resource for resource in held if resource[0] in ranks} != back:
            raise Violation(f"job {jobid} frees a rank in part")
        for resource in back:
            del self.owner[resource]
        held -= back
        if final:
            if held:
                raise Violation(f"the final free of job {jobid} leaves {sorted(held)[:5]}")
            del self.held[jobid]

    def shrink(self, ranks):
        """Ranks leave the inventory; jobs keep their holdings on them."""
        gone = {resource for resource in self.inventory if resource[0] in ranks}
        self.inventory -= gone
        self.left |= gone

    def renew(self, R):
        """A new scheduler starts with the inventory `R`: ranks that left may be back."""
        self.inventory = resources_of(R, "inventory")

    def free_cores_and_gpus(self, ranks):
        """{rank: (free cores, free GPUs)} of `ranks`."""
        count = {rank: [0, 0] for rank in ranks}
        for resource in self.inventory:
            if resource[0] in count and resource not in self.owner:
                count[resource[0]][resource[1] == "gpu"] += 1
        return {rank: tuple(numbers) for rank, numbers in count.items()}

    def fits(self, shape, ranks):
        """Whether a job of `shape` could be allocated on the free part of `ranks` now.

        Args:
            shape (dict): nodes (0: anywhere), slots (a node, or in all), cores, gpus (a slot),
                exclusive
        """
        capacity = 0
        whole = self._whole_ranks() if shape.get("exclusive") else None
        for rank, (cores, gpus) in self.free_cores_and_gpus(ranks).items():
            if whole is not None and rank not in whole:
                continue
            slots = cores // shape["cores"]
            if shape["gpus"]:
                slots = min(slots, gpus // shape["gpus"])
            capacity += slots >= shape["slots"] if shape["nodes"] else slots
        return capacity >= (shape["nodes"] or shape["slots"])

    def _whole_ranks(self):
        return ranks_of(self.inventory) - ranks_of(self.owner)
