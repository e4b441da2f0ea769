# SPDX-License-Identifier: LGPL-3.0-or-later
"""Resources: sets of them, pools that schedulers allocate from, and their state.

Laid over the ``flux.resource`` of the host's bindings: modules that are not
here come from there.  Each class that shares its name with its module is bound
by importing the module first, and in this order: the import system binds the
module's name in this package when it is first imported, and the class has to
come after (``Rv1Set`` before ``ResourceSet``, which imports it from here).
``flux.job`` must not be imported from here: it wants ``SchedResourceList``.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

# isort: off
from flux.resource.Rv1Set import Rv1Set
from flux.resource.ResourceSetImplementation import ResourceSetImplementation
from flux.resource.ResourceSet import ResourceSet
from flux.resource.list import SchedResourceList, resource_list
from flux.resource.status import ResourceStatus, resource_status
from flux.resource.journal import ResourceJournalConsumer
from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.ResourceCount import ResourceCount
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.resource.Rv1Pool import ResourceRequest, Rv1Pool
from flux.resource.ResourcePool import ResourcePool

# isort: on
