# SPDX-License-Identifier: LGPL-3.0-or-later
"""Broker attributes: named strings that describe an instance.

Every attribute of the instance is declared here once, with its permitted changes:

* ``START``: may be given at start (``flux start -S NAME=VALUE``);
* ``RUN``: may be changed while the instance runs (``flux setattr``).

Names that are not declared do not exist: a misspelt one is an error, not a new attribute.
"""

import errno

START = 1
RUN = 2

#: The scripts of a real instance, which `rc` does the work of; another path is run as a command.
RC1, RC3 = "flux modprobe rc1", "flux modprobe rc3"

#: name -> (default or None for "not set", permitted changes)
DECLARED = {
    "broker.module-nopanic": (None, START | RUN),
    "broker.pid": (None, 0),
    "broker.rc1_path": (RC1, START),
    "broker.rc3_path": (RC3, START),
    "broker.starttime": (None, 0),
    "config.path": (None, START),
    "hostlist": (None, 0),
    "hostname": (None, START),
    "instance-level": ("0", 0),
    "jobid": (None, 0),
    "local-uri": (None, START),
    "log-filename": (None, START | RUN),
    "log-forward-level": ("3", START),
    "log-level": ("7", START),
    "log-ring-size": ("1024", START),
    "log-stderr-level": ("3", START | RUN),
    "parent-uri": (None, 0),
    "rank": ("0", 0),
    "rundir": (None, START),
    "security.owner": (None, 0),
    "size": ("1", 0),
    "version": (None, 0),
}


class AttrTable:
    def __init__(self):
        self._values = {n: d for n, (d, _) in DECLARED.items() if d is not None}
        self._watchers = {}

    def get(self, name, default=None):
        """Return the value of `name`, or `default` if it is not set."""
        return self._values.get(name, default)

    def get_int(self, name, default=0):
        """Return `name` as an integer, or `default` if it is unset or not a number."""
        try:
            return int(self._values[name], 0)
        except (KeyError, ValueError):
            return default

    def is_true(self, name):
        """Return whether `name` is set to a true value."""
        return self._values.get(name, "0") not in ("", "0", "false", "no", "off")

    def flags(self, name):
        """Return 1 for an attribute that cannot change while the instance runs, else 0."""
        return 0 if DECLARED[name][1] & RUN else 1

    def define(self, name, value):
        """Set a declared attribute on the instance's own behalf."""
        self._values[name] = str(value)
        for callback in self._watchers.get(name, ()):
            callback(str(value))

    def set_at_start(self, name, value):
        """Set `name` from the command line; ValueError if it is unknown or belongs to the instance."""
        if name not in DECLARED:
            raise ValueError(f"{name}: unknown attribute")
        if not DECLARED[name][1] & START:
            raise ValueError(f"{name}: attribute may not be set on the command line")
        self.define(name, value)

    def set(self, name, value):
        """Set `name` while the instance runs; OSError if that cannot be done."""
        if name not in DECLARED:
            raise OSError(errno.ENOENT, "unknown attribute")
        if not DECLARED[name][1] & RUN:
            raise OSError(errno.EINVAL, "attribute may not be updated")
        if name.startswith("log-") and name.endswith("-level"):
            _check_level(value)
        self.define(name, value)

    def watch(self, name, callback):
        """Call `callback` with the new value after each change of `name`."""
        self._watchers.setdefault(name, []).append(callback)


def _check_level(value):
    try:
        if -1 <= int(value) <= 7:
            return
    except ValueError:
        pass
    raise OSError(errno.EINVAL, "invalid level")
