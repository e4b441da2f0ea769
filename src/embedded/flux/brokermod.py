"""Base class of broker modules written in Python.

    from flux.brokermod import BrokerModule, request_handler

    class Greeter(BrokerModule):
        @request_handler("hello")            # topic NAME.hello
        def hello(self, msg):
            self.handle.respond(msg, {"from": self.name})

A file that holds one such class is a broker module; a file with more than one
also defines ``mod_main(h, *args)``.
"""

from flux.constants import (
    FLUX_MSGTYPE_EVENT,
    FLUX_MSGTYPE_REQUEST,
    FLUX_ROLE_ALL,
)
from flux_embedded.broker.defaults import DEBUG_FLAGS
from flux_embedded.formats.levels import LEVELS

__all__ = [
    "BrokerLogger",
    "BrokerModule",
    "event_handler",
    "request_handler",
    "resolve_entry_point",
]


class _Handler:
    """What a decorator noted about a method."""

    def __init__(self, type_mask, topic, prefix, allow_guest):
        self.type_mask = type_mask
        self.topic = topic
        self.prefix = prefix
        self.allow_guest = allow_guest


def _mark(handler):
    def decorate(method):
        method.__dict__.setdefault("_broker_handlers", []).append(handler)
        return method

    return decorate


def request_handler(topic, prefix=True, allow_guest=False):
    """Have a method ``method(self, msg)`` answer requests.

    Args:
        topic (str): what follows the module's name and a dot in the topic
        prefix (bool): False: `topic` is the whole topic
        allow_guest (bool): let requests of other users than the owner through
    """
    return _mark(_Handler(FLUX_MSGTYPE_REQUEST, topic, prefix, allow_guest))


def event_handler(topic, prefix=True):
    """Subscribe to an event and have ``method(self, msg)`` called with it.

    Args:
        topic (str): what follows the module's name and a dot in the topic
        prefix (bool): False: `topic` is the whole topic
    """
    return _mark(_Handler(FLUX_MSGTYPE_EVENT, topic, prefix, True))


class BrokerLogger:
    """Writes to the broker's log, down to a level.

    Args:
        h (Flux): the module's handle
    """

    #: syslog number of each level name
    LEVEL_NAMES = {name: number for number, name in enumerate(LEVELS)}

    def __init__(self, h):
        self._handle = h
        self._level = self.LEVEL_NAMES["debug"]

    @property
    def level(self):
        """The least urgent level let through: read as int; set as int or name in any case."""
        return self._level

    @level.setter
    def level(self, value):
        number = value
        if isinstance(value, str):
            number = self.LEVEL_NAMES.get(value.lower())
        if type(number) is not int or not 0 <= number <= 7:
            names = ", ".join(self.LEVEL_NAMES)
            raise ValueError(f"invalid log level {value!r}: expected one of {names}")
        self._level = number

    @property
    def level_name(self):
        """The name of `level`."""
        return list(self.LEVEL_NAMES)[self._level]

    def log(self, level, text):
        """Log `text` at a syslog level 0..7 unless `level` keeps it back."""
        if level <= self._level:
            self._handle.log(level, text)

    def debug(self, text):
        self.log(7, text)

    def info(self, text):
        self.log(6, text)

    def notice(self, text):
        self.log(5, text)

    def warning(self, text):
        self.log(4, text)

    def error(self, text):
        self.log(3, text)

    def critical(self, text):
        self.log(2, text)

    def alert(self, text):
        self.log(1, text)

    def emerg(self, text):
        self.log(0, text)


class BrokerModule:
    """A broker module.

    Args:
        h (Flux): the handle its entry point was given
        args (str): module arguments

    Attributes:
        log (BrokerLogger): the module's log
    """

    def __init__(self, h, *args):
        self._handle = h
        self._args = tuple(args)
        self.log = BrokerLogger(h)
        self._watchers = []
        self._register_handlers()

    @property
    def handle(self):
        """The module's handle."""
        return self._handle

    @property
    def name(self):
        """The module's name as the broker knows it."""
        return self._handle.task.name

    @property
    def args(self):
        """The module's arguments, a tuple of str."""
        return self._args

    def _register_handlers(self):
        # Subclasses first: where two methods of different names handle one topic the watcher
        # registered last answers, which is the base class's.
        for cls in type(self).__mro__:
            for name, attribute in vars(cls).items():
                for handler in getattr(attribute, "_broker_handlers", ()):
                    self._register(name, handler)

    def _register(self, name, handler):
        method = getattr(self, name)
        topic = f"{self.name}.{handler.topic}" if handler.prefix else handler.topic
        if handler.type_mask == FLUX_MSGTYPE_EVENT:
            self._handle.event_subscribe(topic)
        watcher = self._handle.msg_watcher_create(
            lambda h, watcher, msg, args: method(msg),
            handler.type_mask,
            topic,
            rolemask=FLUX_ROLE_ALL if handler.allow_guest else None,
        )
        watcher.start()
        self._watchers.append(watcher)

    def run(self):
        """Handle messages until the module is stopped.

        Raises:
            OSError: it was stopped with an error
        """
        if self._handle.reactor_run() < 0:
            raise OSError("reactor exited with error")

    def set_running(self):
        """Tell the broker that the module is up, before its reactor runs."""
        task = self._handle.task
        if hasattr(task, "set_running"):
            task.set_running()

    def stop(self):
        """Make `run` return."""
        self._handle.reactor_stop()

    def stop_error(self):
        """Make `run` raise OSError."""
        self._handle.reactor_stop_error()

    def debug_test(self, flag, clear=False):
        """Whether a bit of the module's debug word is set (``flux module debug --setbit``).

        Args:
            flag (int): the bit
            clear (bool): take it out of the word
        """
        aux = self._handle.task.aux
        word = aux.get(DEBUG_FLAGS, 0)
        if clear:
            aux[DEBUG_FLAGS] = word & ~flag
        return bool(word & flag)


def resolve_entry_point(module):
    """Return what starts a module: its ``mod_main``, or its only BrokerModule subclass.

    Args:
        module: the executed module file

    Raises:
        ValueError: there is neither, or more than one subclass
    """
    main = getattr(module, "mod_main", None)
    if main is not None:
        return main
    classes = {}
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, BrokerModule)
            and value is not BrokerModule
        ):
            classes.setdefault(value)
    if not classes:
        raise ValueError("no mod_main() or BrokerModule subclass found")
    if len(classes) > 1:
        names = ", ".join(cls.__name__ for cls in classes)
        raise ValueError(f"multiple BrokerModule subclasses found ({names}); define mod_main()")
    return next(iter(classes))
