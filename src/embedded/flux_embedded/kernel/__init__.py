"""Messages, services, futures, watchers, tasks and the clock: what everything else runs on.

Read `message`, then `kernel`, then `task`; `handle` is the public face (``flux.Flux``) and
`service` the base class of the builtin services.
"""

from flux_embedded.kernel.clock import RealClock, VirtualClock
from flux_embedded.kernel.kernel import Endpoint, Kernel
from flux_embedded.kernel.message import Message
from flux_embedded.kernel.task import Task

__all__ = ["Endpoint", "Kernel", "Message", "RealClock", "Task", "VirtualClock"]
