"""``flux help``: what commands there are, and each one's own help."""

import sys

USAGE = """\
Usage: flux [OPTIONS] COMMAND ARGS
  -h, --help             Display this message.
  -v, --verbose          Be verbose about environment and command search
  -V, --version          Display command and component versions
  -p, --parent           Set environment of parent instead of current instance
  -r, --root             Set environment of root instead of current instance

This is the embedded instance of flux-scheduler: a subset of flux-core's
commands, in their syntax. For general Flux documentation, please visit
    https://flux-framework.readthedocs.io

run and submit jobs, allocate resources
   submit             submit a job to a Flux instance
   run                run a Flux job interactively
   bulksubmit         submit jobs in bulk to a Flux instance
   alloc              allocate a new Flux instance for interactive use
   batch              submit a batch script to Flux

list and interact with jobs
   jobs               list jobs submitted to Flux
   cancel             cancel one or more jobs
   job                get job status, info, etc (see: flux help job)
   proxy              proxy connections to Flux jobs and instances
   update             update active Flux jobs

get resource, queue and other instance information
   resource           list/manipulate Flux resource status
   queue              list and manipulate flux queues
   housekeeping       list and stop housekeeping tasks
   overlay            Show flux overlay network status
   uptime             Tell how long Flux has been up and running

other useful commands
   start              bootstrap a local Flux instance
   version            Display flux version information
   config             Manage/query Flux configuration
   env                Print the flux environment or execute a command inside it
   python             run Python with the Flux modules on its path
   module             manage Flux broker modules
   modprobe           load and remove modules by their dependencies
   jobtap             list, load and remove job manager plugins
   kvs                Flux key-value store utility
   dmesg              print or manipulate the broker log
   logger             create an entry in the broker log
   getattr, setattr, lsattr
                      access, modify, and list broker attributes
   event              send and receive Flux events
   exec               run a command across brokers
   ping               measure round-trip latency to a Flux service
   R                  read, generate, and process resource sets

See 'flux help COMMAND' for more information about a specific command.
"""


def main(argv):
    if not argv:
        sys.stdout.write(USAGE)
        return 0
    from flux_embedded.cmd.dispatch import run

    return run([argv[0], "--help"])
