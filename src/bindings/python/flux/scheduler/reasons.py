"""Why a job is pending, in its user's terms."""


def describe(facts):
    """One sentence from what ``ResourcePool.explain()`` found.

    Args:
        facts (dict): total, matching, up, free, needed (numbers), unit ("nodes" or "slots")

    Returns:
        str: what the job waits for
    """
    needed, unit = facts["needed"], facts["unit"]
    matching, up, free = facts["matching"], facts["up"], facts["free"]
    if unit == "nodes" and up < needed <= matching:
        return "{} of {} matching nodes are down".format(matching - up, matching)
    return "insufficient resources: needs {} {}, {} free of {} matching constraint".format(
        needed, unit if needed != 1 else unit[:-1], free, matching
    )
