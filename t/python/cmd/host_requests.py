# SPDX-License-Identifier: LGPL-3.0-or-later
"""Send one table of requests to the services of an embedded instance and of a real one, and compare the answers.

``requests.txt`` beside this file has the table: one request a line, its topic and a payload.  Each is sent as it stands; one
of each topic also without a payload, with an empty object, with something that is no object, with each of its keys missing
and with each of its keys of a wrong type, and once more as a guest.  What comes back is compared: the error number and text,
or the object of the response with what differs from run to run left out.  Not all that differs has to be mended: requests of
the instance's own, statistics, and services that it does not have are in the table, too.

As a command it prints what differs, and needs a real ``flux`` (``--real``, or WITH_FLUX in the environment)::

    .venv/bin/python t/python/cmd/host_requests.py --real PREFIX/bin/flux [SERVICE ...]
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = Path(__file__).with_name("requests.txt")

#: What the instance has to schedule: no processes, the ranks above 0 are not there.
START = [
    "-Slog-stderr-level=-1",
    "--conf=fake-resources.nnodes=4",
    "--conf=fake-resources.cores-per-node=8",
    "--conf=fake-resources.gpus-per-node=2",
]

#: Seconds to wait for a response that may not come.
PATIENCE = 0.25

#: Seconds that all requests to one instance may take.
MOST = 400

#: Values that stand in for the one a key has in the table, by the type they are not.
WRONG = [None, True, -1, 3, 1.5, "x", "", [], ["x"], {}]


def requests(text):
    """Read a table: yield (mode, topic, payload).

    A line is ``MODE TOPIC PAYLOAD``; MODE is a word of letters: ``s`` the streaming flag is set, ``v`` the request is
    sent in all its variants, and as a guest too (unless ``o``), ``-`` for none of these.  Empty lines and those that begin with ``#`` are comments.
    """
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            mode, _, rest = line.partition(" ")
            topic, _, payload = rest.strip().partition(" ")
            yield mode, topic, json.loads(payload) if payload else None


def variants(mode, topic, payload):
    """Yield (topic, payload, streaming) for a request of the table and, with ``v``, for what is made of it."""
    streaming = "s" in mode
    yield topic, payload, streaming
    if "v" not in mode:
        return
    yield topic, payload, not streaming
    if payload is not None:
        yield topic, None, streaming
    if payload != {}:
        yield topic, {}, streaming
    yield topic, ["x"], streaming
    for key in payload or ():
        rest = {name: value for name, value in payload.items() if name != key}
        if rest:
            yield topic, rest, streaming
        for value in WRONG:
            if value != payload[key] or type(value) is not type(payload[key]):
                yield topic, {**payload, key: value}, streaming


# -- inside an instance ------------------------------------------------------------------------------


class Jobs:
    """Jobs that requests are about, by the names they have in the table."""

    def __init__(self, handle):
        import flux.job

        self.job = flux.job
        self.handle = handle
        self.ids = {}

    def submit(self, seconds, count=1, **kwargs):
        """Submit a job that lasts `seconds` on `count` cores, without processes."""
        spec = self.job.JobspecV1.from_command(["true"], num_tasks=count)
        spec.environment = {}
        spec.setattr("system.exec.test.run_duration", f"{seconds}s")
        return int(self.job.submit(self.handle, spec, **kwargs))

    def make(self):
        """A job that runs, one that waits, one that is done, one that was canceled, and one that nobody knows."""
        self.ids["RUN"] = self.submit(3600, 2)
        self.job.event_wait(self.handle, self.ids["RUN"], "start")
        self.ids["HELD"] = self.submit(3600, urgency=0)
        self.job.event_wait(self.handle, self.ids["HELD"], "priority")
        self.ids["DONE"] = self.submit(0.01)
        self.job.event_wait(self.handle, self.ids["DONE"], "clean")
        self.ids["GONE"] = self.submit(3600, urgency=0)
        self.job.cancel(self.handle, self.ids["GONE"])
        self.job.event_wait(self.handle, self.ids["GONE"], "clean", raiseJobException=False)
        self.ids["NONE"] = 1

    def fill(self, payload):
        """A payload with ids for their names."""
        if isinstance(payload, dict):
            return {key: self.fill(value) for key, value in payload.items()}
        if isinstance(payload, list):
            return [self.fill(value) for value in payload]
        if isinstance(payload, str) and payload[:1] == "$":
            return self.ids[payload[1:]]
        return payload


def ask(handle, topic, payload, streaming):
    """What came back for a request: a list of objects, and at its end ``ERR errno text`` or ``...``."""
    import flux.constants

    flags = flux.constants.FLUX_RPC_STREAMING if streaming else 0
    found = []
    try:
        future = handle.rpc(topic, payload, flags=flags)
        while len(found) < 3:
            future.wait_for(PATIENCE)
            found.append(future.get())
            if not streaming:
                break
            future.reset()
    except TimeoutError:
        found.append("...")
    except (OSError, ValueError) as exc:
        found.append(f"ERR {getattr(exc, 'errno', None)} {exc}")
    return found


def inside(table, out):
    """Send the requests of a file and write what came back to another."""
    import flux

    owner = flux.Flux()
    jobs = Jobs(owner)
    guest = "FLUX_HANDLE_ROLEMASK" in os.environ
    if not guest:
        jobs.make()
        Path(out).with_suffix(".ids").write_text(json.dumps(jobs.ids))
    else:
        jobs.ids = json.loads(Path(out).with_suffix(".ids").read_text())
    handle = flux.Flux()
    names = {str(value): f"${name}" for name, value in jobs.ids.items() if value > 9}
    with open(out, "a", encoding="utf-8") as stream:
        for mode, topic, payload in requests(Path(table).read_text(encoding="utf-8")):
            if guest and ("o" in mode or "v" not in mode):
                continue
            cases = [(topic, payload, "s" in mode)] if guest else variants(mode, topic, payload)
            for case in cases:
                answer = ask(handle, case[0], jobs.fill(case[1]), case[2])
                if answer[-1] == "...":
                    handle = flux.Flux()
                text = json.dumps(answer, sort_keys=True)
                for number, name in names.items():
                    text = text.replace(number, name)
                stream.write(
                    f"{'guest ' if guest else ''}{'~' if case[2] else ''}{case[0]} {json.dumps(case[1])}\t{text}\n"
                )
                stream.flush()


# -- outside -----------------------------------------------------------------------------------------

#: What differs from run to run: (pattern in the answer, what takes its place).
SCRUB = [
    (re.compile(r"\b[0-9]{10}\.[0-9]+\b"), "TIME"),
    (re.compile(r'("(?:duration|timestamp|t_submit|now)": )[0-9.e-]+'), r"\1TIME"),
    (re.compile(r'"(route|uuid)": "[^"]*"'), r'"\1": "X"'),
]


def send_requests(flux, table):
    """Send the requests of a file in an instance of `flux`: {request with its number: answer}."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FLUX_") and name not in ("PYTHONPATH", "LD_LIBRARY_PATH")
    }
    environ.update(PATH=f"{Path(flux).parent}:{environ['PATH']}", LC_ALL="C.UTF-8")
    with tempfile.TemporaryDirectory(prefix="requests") as scratch:
        out = f"{scratch}/answers"
        words = f"flux python {__file__} --inside {table} {out}"
        pose = "FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=1234"
        done = Path(scratch, "done")
        command = f"{words} && {pose} {words}; touch {done}"
        process = subprocess.Popen(
            [flux, "start", *START, "bash", "-c", command],
            env=environ,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + MOST
        while process.poll() is None and not done.exists() and time.monotonic() < until:
            time.sleep(0.2)
        # what was asked of it may keep an instance from ending by itself
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        answers, counts = {}, {}
        for line in Path(out).read_text(encoding="utf-8").splitlines():
            asked, _, answer = line.partition("\t")
            counts[asked] = counts.get(asked, 0) + 1
            if counts[asked] > 1:
                asked = f"{asked} [{counts[asked]}]"
            for pattern, replacement in SCRUB:
                answer = pattern.sub(replacement, answer)
            answers[asked] = answer
    return answers


def main(argv=None):
    """Print what differs; the exit status is 0 if nothing does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--real", default=os.environ.get("WITH_FLUX"), help="the other flux")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--table", default=str(TABLE), help="the requests (%(default)s)")
    parser.add_argument("--save", help="keep the answers of both in files of this name")
    parser.add_argument("names", nargs="*", metavar="SERVICE", help="show these services only")
    args = parser.parse_args(argv)
    if args.inside:
        inside(*args.names)
        return 0
    if not args.real:
        parser.error("no real flux: name it by --real or WITH_FLUX")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        both = (args.real, str(ROOT / "src/cmd/flux"))
        real, ours = pool.map(lambda flux: send_requests(flux, args.table), both)
    if args.save:
        for name, answers in (("real", real), ("ours", ours)):
            text = "".join(f"{asked}\t{answer}\n" for asked, answer in answers.items())
            Path(f"{args.save}.{name}").write_text(text, encoding="utf-8")
    differ = alike = 0
    for asked, answer in real.items():
        topic = asked.removeprefix("guest ").lstrip("~").partition(" ")[0]
        if args.names and topic.partition(".")[0] not in args.names:
            continue
        alike += ours.get(asked) == answer
        if ours.get(asked) != answer:
            differ += 1
            print(f"{asked}\n  real {answer}\n  ours {ours.get(asked)}")
    print(f"{alike} of {alike + differ} requests are answered alike")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
