# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate``: recorded or invented jobs through an unchanged scheduler, under a virtual clock.

- `workload`: readers of traces, models, and what is made of their jobs
- `machine`: the resources they run on
- `engine`: plays the job manager and the resource service, or runs a whole instance
- `run`: policies side by side in processes
- `results`, `report`: files, figures, tables and the page about them
"""

#: Of the formats that are written; goes into the provenance of results.
__version__ = "1"
