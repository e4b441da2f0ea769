# SPDX-License-Identifier: LGPL-3.0-or-later
"""What schedulers run on without a Flux: the engine of `flux.simulate` and of the embedded instance.

- `kernel`: messages, the handle, timers and the reactor, on a real or a virtual clock
- `modules`: finding and running the files of broker modules
- `job_manager`: the job manager's side of a scheduler: queues, requests for resources, and the check of each answer
- `resource`: the resource service's side: the inventory, which ranks are up, and the acquire stream
- `formats`: the texts and objects of the RFCs
- `command`: options and errors of commands
- `paths`: where the parts of an installation are

It takes a Python with greenlet. Nothing in it needs the embedded instance, which adds the other services.
"""
