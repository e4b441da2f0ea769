"""Changes of the inventory after the first response of ``resource.acquire`` (RFC 28)."""


def _properties(pool, method, table):
    apply = getattr(pool, method)
    for name, ranks in table.items():
        apply(name, ranks)


#: key of the response, pool method it needs, how it is applied; in the order in which they apply,
#: so that down wins over up and shrink over both.
STEPS = (
    ("property-remove", "remove_property", lambda pool, v: _properties(pool, "remove_property", v)),
    ("property-add", "add_property", lambda pool, v: _properties(pool, "add_property", v)),
    ("up", "mark_up", lambda pool, v: pool.mark_up(v)),
    ("down", "mark_down", lambda pool, v: pool.mark_down(v)),
    ("shrink", "remove_ranks", lambda pool, v: pool.remove_ranks(v)),
    ("expiration", "set_expiration", lambda pool, v: pool.set_expiration(v)),
)

#: Those that can let a job run that could not before.
HELPFUL = frozenset(("property-remove", "property-add", "up", "shrink", "expiration"))


def apply_update(pool, update, log, warned):
    """Apply one response to `pool`, as a unit.

    A step that fails, or that the pool cannot do, is reported and does not keep the others from
    being made.

    Args:
        pool (ResourcePool): the scheduler's pool
        update (dict): the response
        log: a BrokerLogger
        warned (set): operations already warned about

    Returns:
        (bool, list): whether a waiting job might run now; errors, as (key, exception)
    """
    helpful = False
    errors = []
    for key, method, step in STEPS:
        value = update.get(key)
        if value is None or value == "":
            continue
        if not hasattr(pool, method):
            if method not in warned:
                warned.add(method)
                log.warning(f"resource update: this pool class has no {method}(): {key} is ignored")
            continue
        try:
            step(pool, value)
        except Exception as exc:
            errors.append((key, exc))
        helpful = helpful or key in HELPFUL
    return helpful, errors
