# SPDX-License-Identifier: LGPL-3.0-or-later
"""The engine that runs schedulers without a Flux, for `flux.simulate` and the embedded instance.

- `kernel`: messages, the handle, timers and the reactor, on a real or a virtual clock
- `modules`: finding and running the files of broker modules
- `job_manager`: the job manager's side of a scheduler: queues, requests for resources, and the check of each answer
- `resource`: the resource service's side: the inventory, which ranks are up, and the acquire stream
- `formats`: the text and JSON formats of the RFCs
- `command`: options and errors of commands
- `paths`: the directories of an installation

It requires greenlet. It does not depend on the embedded instance, which adds the other services.
"""
