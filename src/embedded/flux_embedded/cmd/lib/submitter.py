"""Submitting many jobs at once, and waiting for them."""

import sys

from flux_embedded.cmd.lib import eventlog, submission
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, errno_text
from flux_embedded.cmd.lib.follow import exit_code
from flux_embedded.formats.jobid import f58


class Progress:
    """A line on a terminal's stderr that says how far the jobs are."""

    def __init__(self, total, jps):
        import time

        self.clock = time.monotonic
        self.start = self.last = self.clock()
        self.total, self.jps = total, jps

    def show(self, submitted, finished, failed, waiting, end=False):
        now = self.clock()
        if not end and now - self.last < 0.1:
            return
        self.last = now
        done = finished if waiting else submitted
        share = done / self.total if self.total else 1
        bar = "#" * int(share * 40)
        text = f"S:{submitted} CD:{finished - failed} F:{failed} |{bar:<40}| {share:5.1%}"
        if self.jps:
            text += f" {done / max(now - self.start, 1e-3):.1f} job/s"
        sys.stderr.write("\r" + text + ("\n" if end else ""))
        sys.stderr.flush()


class Submitter:
    """Sends jobs without waiting for one before the next, and prints their ids in order.

    Args:
        args: parsed options (:func:`submission.add_bulk_options`).
    """

    def __init__(self, args):
        self.args = args
        self.client = connect()
        self.code = 0
        self.outstanding = 0
        self.submitted = self.finished = self.failed = 0
        self.watch = args.watch
        self.follow = args.watch or args.wait
        self.files = {}
        self.progress = None
        if (args.progress or args.jps) and sys.stderr.isatty():
            self.progress = Progress(0, args.jps)

    def _stream(self, path, default):
        if not path:
            return default
        if path not in self.files:
            try:
                self.files[path] = open(path, "w", encoding="utf-8", errors="surrogateescape")
            except OSError as exc:
                raise CommandError(f"{path}: {exc.strerror}") from None
        return self.files[path]

    def submit(self, payload, args=None):
        """Send one job.

        Args:
            payload: of job-ingest.submit.
            args: this job's own options, where they differ.
        """
        args = args or self.args
        cc = payload["jobspec"]["attributes"]["system"]["environment"].get("FLUX_JOB_CC")
        label = f"cc={cc}: " if cc is not None and args.cc is not None else ""
        self.outstanding += 1
        if self.progress:
            self.progress.total += 1

        def answered(answer, error):
            if error is not None:
                err = self._stream(args.log_stderr, self._stream(args.log, sys.stderr))
                print(f"{label}{errno_text(error)}", file=err)
                self.code = max(self.code, 1)
                self.failed += 1
                self.finished += 1
                self._one_less()
                return
            self.submitted += 1
            self._submitted(answer["id"], args)

        self.client.send("job-ingest.submit", payload).then(answered)

    def _submitted(self, jobid, args):
        out = self._stream(args.log, sys.stdout)
        err = self._stream(args.log_stderr, self._stream(args.log, sys.stderr))
        if not args.quiet:
            print(f58(jobid), file=out)
        wait = args.wait_event or ("clean" if self.follow else None)
        if wait is None:
            self._one_less()
        elif wait.startswith("exec."):
            self._wait_exec(jobid, wait[len("exec.") :])
        else:
            self._follow(jobid, wait, args.label_io, out, err)

    def _follow(self, jobid, wait, label, out, err):
        from flux_embedded.cmd.lib import follow

        follow.Follower(
            self.client,
            jobid,
            self._job_done,
            output=self.watch,
            label=label,
            prefix=f"{f58(jobid)}: " if label else "",
            exceptions=False,
            quiet=True,
            wait_event=wait,
            stdout=out,
            stderr=err,
            on_event=self._event,
        )

    def _event(self, follower, event):
        name, context = event["name"], event.get("context", {})
        stamp = f"{f58(follower.jobid)}: {follower.offset(event):4.3f}s: "
        if self.args.verbose > 1:
            follower.stderr.write(f"{stamp}{name} {eventlog.context_text(context)}\n")
        if name == "exception" and context.get("severity") == 0:
            follower.stderr.write(
                f"job.exception: type={context.get('type')} severity=0 {context.get('note') or ''}\n"
            )
        elif name == "finish" and self.args.verbose:
            status = context["status"]
            follower.stderr.write(f"{stamp}{'failed' if status else 'complete'}: status={status}\n")

    def _job_done(self, follower):
        self.finished += 1
        code = 0
        if follower.status is not None:
            code = exit_code(follower.status)
        elif follower.exception is not None and not follower.started:
            code = 1
        self.failed += code > 0
        self.code = max(self.code, code)
        self._one_less()

    def _wait_exec(self, jobid, name):
        from flux_embedded.cmd.lib import follow

        found = []

        def received(payload, error):
            if error is not None:
                if not found:
                    self._one_less()
            elif not found and any(event["name"] == name for event in follow.events(payload)):
                found.append(True)
                self.finished += 1
                self._one_less()

        watch = follow.watch_events(self.client, jobid, "guest.exec.eventlog", waitcreate=True)
        watch.then(received)

    def _one_less(self):
        self.outstanding -= 1
        if self.progress:
            self._show()
        if self.outstanding == 0:
            self.client.stop()

    def _show(self, end=False):
        waiting = self.follow or self.args.wait_event
        self.progress.show(self.submitted, self.finished, self.failed, waiting, end)

    def finish(self):
        """Wait for the answers and for the jobs where that is asked; returns the exit code."""
        if self.outstanding:
            self.client.run()
        if self.progress:
            self._show(end=True)
        for file in self.files.values():
            file.close()
        return self.code


def replicate(spec, cc, bcc):
    """The jobspecs of ``--cc`` or ``--bcc``: (id or None, jobspec) for each."""
    if cc is None and bcc is None:
        yield None, spec
        return
    from flux_embedded.formats import idset

    name, text = ("cc", cc) if cc is not None else ("bcc", bcc)
    try:
        ids = idset.members(idset.decode(text))
    except ValueError as exc:
        raise CommandError(f"--{name}: {exc}") from None
    uses = "{cc}" in _texts(spec)
    for number in ids:
        one = substitute(spec, str(number)) if uses else dict(spec)
        if cc is not None:
            one["attributes"] = attributes = dict(one["attributes"])
            attributes["system"] = system = dict(attributes["system"])
            system["environment"] = {**system["environment"], "FLUX_JOB_CC": str(number)}
        yield number, one


def _texts(spec):
    attributes = dict(spec["attributes"])
    attributes["system"] = {k: v for k, v in attributes["system"].items() if k != "environment"}
    return repr([spec["tasks"], attributes])


def substitute(value, number):
    """value with ``{cc}`` replaced in every string but the environment's."""
    if isinstance(value, str):
        return value.replace("{cc}", number)
    if isinstance(value, list):
        return [substitute(item, number) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key == "environment" else substitute(item, number)
            for key, item in value.items()
        }
    return value


def payloads(args, command):
    """The requests that one set of options makes, without sending them."""
    spec = submission.build(args, command).spec
    base = {} if args.dry_run else submission.request(args, None)
    for _, one in replicate(spec, getattr(args, "cc", None), getattr(args, "bcc", None)):
        yield {**base, "jobspec": one}
