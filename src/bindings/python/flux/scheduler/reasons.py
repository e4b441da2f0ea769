"""Why a job is pending, in its user's terms."""


def describe(facts):
    """One sentence from what ``ResourcePool.explain()`` found.

    Args:
        facts (dict): total, matching, up, available, needed (numbers), unit ("nodes" or "slots")

    Returns:
        str: what the job waits for
    """
    needed, unit = facts["needed"], facts["unit"]
    matching, up, free = facts["matching"], facts["up"], facts["available"]
    if unit == "nodes" and up < needed <= matching:
        return "{} of {} matching nodes are down".format(matching - up, matching)
    wanted = "{} {}".format(needed, unit if needed != 1 else unit[:-1])
    if unit == "nodes":
        return "insufficient resources: needs {}, {} free of {} matching constraint".format(wanted, free, matching)
    return "insufficient resources: needs {}, {} free on {} nodes matching constraint".format(wanted, free, matching)
