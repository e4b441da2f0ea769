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
        return f"{matching - up} of {matching} matching nodes are down"
    wanted = f"{needed} {unit if needed != 1 else unit[:-1]}"
    if unit == "nodes":
        return (
            f"insufficient resources: needs {wanted}, {free} free of {matching} matching constraint"
        )
    return f"insufficient resources: needs {wanted}, {free} free on {matching} nodes matching constraint"
