"""``flux simulate``: recorded or invented jobs through an unchanged scheduler, under a virtual clock.

- `job`: what a trace says about a job, and what it asks for
- `machine`: the resources they run on
- `engine`: plays the job manager and the resource service, or runs a whole instance
"""
