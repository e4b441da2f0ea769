# SPDX-License-Identifier: LGPL-3.0-or-later
"""Submit a job per run, and report each end as a line of JSON. Runs under ``flux python``, in a
real Flux or the embedded instance. A job that loses its node is submitted again.

Standard input: ``interrupt`` ends jobs with the results so far and starts no others; EOF cancels
all jobs.
"""

import json
import os
import queue
import signal
import sys
import threading

import flux
import flux.job

#: Maximum number of starts of a run that keeps losing its node.
TRIES = 4
#: Exception types of a lost node: of a real Flux, and of the embedded instance.
LOST = ("exec", "node-failure")


class Submitter:
    """Submits the jobs of ``call.json`` in a directory and follows them to the end."""

    def __init__(self, directory, executor):
        self.directory = directory
        self.executor = executor
        with open(os.path.join(directory, "call.json"), encoding="utf-8") as stream:
            self.call = json.load(stream)
        self.running = {}
        self.begun = [0] * self.call["jobs"]
        self.is_ending = False
        #: events: (number, future) of an ended job, or a line of standard input
        self.events = queue.SimpleQueue()

    def run(self):
        """Submit all jobs, and return after the last has ended."""
        for number in range(self.call["jobs"]):
            self.submit(number)
        while self.running:
            event = self.events.get()
            if isinstance(event, str):
                self.end(event)
            else:
                self.is_over(*event)

    def submit(self, number):
        """Submit the job of a run."""
        self.begun[number] += 1
        # Processes on a lost node may still write, so each try has its own files.
        name = f"{number}.{self.begun[number]}"
        jobspec = flux.job.JobspecV1.from_command([*self.call["command"], str(number), name])
        jobspec.cwd = self.call["directory"]
        jobspec.environment = self.call["environment"]
        jobspec.setattr("system.job.name", f"simulate-{number}")
        jobspec.stdout = os.path.join(self.directory, f"{name}.out")
        jobspec.stderr = os.path.join(self.directory, f"{name}.err")
        future = self.executor.submit(jobspec)
        self.running[number] = future
        future.add_done_callback(lambda future: self.events.put((number, future)))

    def is_over(self, number, future):
        """Handle a job that ended or was refused."""
        del self.running[number]
        error = future.exception()
        is_lost = getattr(error, "type", None) in LOST
        if is_lost and self.begun[number] < TRIES and not self.is_ending:
            self.submit(number)
            return
        text = (
            str(error).rstrip(": ") if error else f"the job ended with exit code {future.result()}"
        )
        name = f"{number}.{self.begun[number]}"
        print(json.dumps({"number": number, "name": name, "text": text}), flush=True)

    def end(self, how):
        """End all jobs: with the results so far (``interrupt``), or at once."""
        self.is_ending = True
        h = flux.Flux()
        for future in self.running.values():
            try:
                if how == "interrupt":
                    flux.job.kill(h, future.jobid(), signal.SIGINT)
                    continue
            except (OSError, RuntimeError):
                pass  # it is not running yet
            try:
                flux.job.cancel(h, future.jobid())
            except (OSError, RuntimeError):
                pass  # it has ended, or was refused


def main():
    """Run the jobs of a directory, the only argument."""
    with flux.job.FluxExecutor() as executor:
        submitter = Submitter(sys.argv[1], executor)

        def read():
            for line in sys.stdin:
                submitter.events.put(line.strip())
            submitter.events.put("cancel")

        threading.Thread(target=read, daemon=True).start()
        submitter.run()


if __name__ == "__main__":
    main()
