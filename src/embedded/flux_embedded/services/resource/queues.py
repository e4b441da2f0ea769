"""Queue membership of ranks: the ``+NAME`` properties (RFC 33)."""

from flux_embedded.formats import hostlist
from flux_embedded.services.resource.inventory import check_property


def queue_properties(config, inventory):
    """Return ``{"+NAME": bounds}`` for every queue that names its hosts.

    Arguments: config (dict), the whole configuration; inventory (Inventory).

    Raises:
        ValueError: a queue's ``hosts`` is no hostlist, is empty or names a host that is not there
    """
    queues = config.get("queues", {})
    if not isinstance(queues, dict):
        raise ValueError("queues: expected a table")
    result = {}
    for name, queue in queues.items():
        if not isinstance(queue, dict):
            raise ValueError(f"queues.{name}: expected a table")
        if "hosts" not in queue:
            continue
        where = f"queues.{name}.hosts"
        if "requires" in queue:
            raise ValueError(f"{where}: a queue has hosts or requires, not both")
        check_property("+" + name)
        hosts = queue["hosts"]
        if hosts == "all":
            result["+" + name] = list(inventory.ranks)
            continue
        try:
            names = hostlist.decode(hosts) if isinstance(hosts, str) else None
            members = inventory.ranks_of_hosts(names) if names else []
        except ValueError as exc:
            raise ValueError(f"{where}: {exc}") from None
        if not members:
            raise ValueError(f"{where}: expected a hostlist with at least one host, or 'all'")
        result["+" + name] = members
    return result
