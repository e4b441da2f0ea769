# SPDX-License-Identifier: LGPL-3.0-or-later
"""The embedded instance in the test's own process: the base of the harnesses of its services."""

import pytest

from _flux.module import module_handle
from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.handle import RPC_STREAMING, Flux
from flux_engine.kernel.message import OWNER, OWNER_ROLES, ROLE_USER
from flux_engine.kernel.task import Task


def refused(number, call, *args, **kwargs):
    """Check that a call raises an OSError of this errno; return its text."""
    with pytest.raises(OSError) as caught:
        call(*args, **kwargs)
    assert caught.value.errno == number
    return caught.value.strerror or str(caught.value)


class Stream:
    """The responses to a streaming request, sent by a client of an instance; `errnum` and `text` of its end, else None."""

    def __init__(self, client, topic, payload=None):
        self.kernel = client.kernel
        self.errnum = self.text = None
        self.items = []
        self.future = client.rpc(topic, payload, flags=RPC_STREAMING)

    def take(self):
        """Return the payloads received since the last call; `items` has all."""
        self.kernel.run_until_idle()
        before = len(self.items)
        while self.errnum is None and self.future.is_ready():
            try:
                self.items.append(self.future.get())
                self.future.reset()
            except OSError as exc:
                self.errnum, self.text = exc.errno, exc.strerror
        return self.items[before:]


class InProcess(Instance):
    """An instance that is started at once, on the virtual clock by default."""

    def __init__(self, clock=None, **options):
        super().__init__(clock=clock or VirtualClock(), **options)
        self.start()

    def run(self):
        """Run all events that need no time to pass."""
        self.kernel.run_until_idle()

    def call(self, topic, payload=None, **kwargs):
        """Return the response to a request."""
        return self.handle.rpc(topic, payload, **kwargs).get()

    def fails(self, topic, payload=None, **kwargs):
        """Return (errno, text) of a request that must fail."""
        with pytest.raises(OSError) as caught:
            self.call(topic, payload, **kwargs)
        return caught.value.errno, caught.value.strerror

    def as_user(self, userid=OWNER):
        """Send further requests as a guest, or as the owner."""
        task = self.handle.task
        task.userid, task.rolemask = userid, OWNER_ROLES if userid == OWNER else ROLE_USER

    def client(self, name="client", **credentials):
        """Return another client."""
        return Flux(Task(self.kernel, name, **credentials))

    def bindings(self, client=None):
        """Return a handle of flux-core's bindings for a client; default: the instance's own."""
        return module_handle(client or self.handle)
