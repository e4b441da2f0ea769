# SPDX-License-Identifier: LGPL-3.0-or-later
"""An instance in the test's own process, with the services that a test needs."""

from _flux.module import module_handle
from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.task import Task


def make(*services, **options):
    """Start an Instance on the virtual clock; stop it when done."""
    options.setdefault("clock", VirtualClock())
    instance = Instance(services=services, **options)
    if "resource" in services:
        instance.start()
        return instance
    # Without the resource service there are no ranks to bring online.
    instance.start_broker()
    for name in services:
        instance.load_module(name)
    return instance


def handle(instance):
    """The instance's own handle, as one of the bindings."""
    return module_handle(instance.handle)


def another_handle(instance, name="other", **credentials):
    """A second client."""
    return module_handle(Flux(Task(instance.kernel, name, **credentials)))
