"""The module arguments that every scheduler takes."""

from flux.scheduler.pools import _pool_class_from_uri, check_pool_class

BUILTIN = "queue-depth, log-level, pool-class"
LEVELS = "emerg, alert, crit, err, warning, notice, info, debug"


def parse_depth(text, spelling=None):
    """A queue depth: a positive int, or "unlimited".

    Raises:
        ValueError: it is neither
    """
    if text == "unlimited":
        return text
    if type(text) is int and text > 0:
        return text
    # isdigit() also takes digits of other scripts, which int() takes as well.
    if isinstance(text, str) and text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ValueError(
        f"queue-depth={text!r} is invalid: expected a positive integer or 'unlimited'"
        if spelling is None
        else f"{spelling} requires a positive integer, got {text!r}"
    )


def apply_builtin(scheduler, args):
    """Take the built-in arguments out of `args` and set them on `scheduler`.

    Returns:
        list of str: the arguments that are not built in

    Raises:
        ValueError: a value is wrong
    """
    rest = []
    for arg in args:
        name, equals, value = arg.partition("=")
        if name == "queue-depth" and equals:
            scheduler.queue_depth = parse_depth(value)
        elif name == "log-level" and equals:
            set_level(scheduler.log, value)
        elif name == "pool-class" and equals:
            found = _pool_class_from_uri(value)
            if found is None:
                raise ValueError(f"pool-class={value!r}: could not load pool class")
            scheduler.pool_class = check_pool_class(found)
        elif arg == "mode=unlimited":
            scheduler.queue_depth = "unlimited"
        elif arg.startswith("mode=limited="):
            scheduler.queue_depth = parse_depth(arg[len("mode=limited=") :], "mode=limited=")
        else:
            rest.append(arg)
    return rest


def set_level(log, name):
    """Set the threshold of a BrokerLogger.

    Raises:
        ValueError: there is no level of that name
    """
    try:
        log.level = name.lower()
    except ValueError:
        raise ValueError(f"log-level={name!r} is invalid: expected one of {LEVELS}") from None


def reject(args):
    """Complain about the first argument that nobody took.

    Raises:
        ValueError: there is one
    """
    for arg in args:
        raise ValueError(f"unknown argument {arg!r}: built-in options are {BUILTIN}")
