# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plugins with forbidden actions in their callbacks: the job manager goes on, the log names the plugin's file and line, and
no job is in limbo."""

import re

import pytest

from flux.scheduler.testing import jobspec

INACTIVE = 64
#: Topics in which a plugin may refuse, and topics in which its failures are only logged.
MAY_REFUSE = ("job.create", "job.validate", "plugin.query", "conf.update")
IS_LOGGED = """job.new job.state.depend job.state.priority job.priority.get job.state.sched job.state.run job.state.cleanup
    job.state.inactive job.event.* job.inactive-add job.destroy""".split()
#: Name -> the body of a callback, and whether the log names its file and line.
DEEDS = {
    "raises": ("raise ValueError('odd')", True),
    "interrupts": ("raise KeyboardInterrupt", True),
    "exits": ("sys.exit(3)", True),
    "exits at once": ("os._exit(3)", True),
    "aborts": ("os.abort()", True),
    "becomes another": ("os.execv('/bin/true', ['true'])", True),
    "recurses": ("return callback(p, topic, args)", True),
    "returns a float": ("return 3.5", True),
    "returns a text": ("return 'yes'", True),
    "returns a list": ("return [1]", True),
    "returns an object": ("return object()", True),
    "returns NaN": ("return {'priority': float('nan'), 'annotations': {'x': float('inf')}}", True),
    "returns wrong answers": ("return {'annotations': 5, 'R': {}, 'updates': 3}", True),
    "returns what refers to itself": ("d = {}\n    d['d'] = d\n    return d", True),
    "returns something deep": (
        "d = {}\n    for _ in range(50000): d = {'d': d}\n    return d",
        True,
    ),
    "forks": (
        "pid = os.fork()\n    if pid == 0: os._exit(0)\n    try:\n        os.waitpid(pid, 0)\n"
        "    except ChildProcessError:\n        pass",
        False,
    ),
    "runs a command": ("assert subprocess.run(['sh', '-c', 'exit 7']).returncode == 7", False),
    "starts threads": (
        "for _ in range(3):\n        t = threading.Thread(target=other, args=(p,), daemon=True)\n"
        "        t.start()\n        t.join()",
        False,
    ),
    "changes signals": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", True),
    "sets an alarm": ("signal.alarm(1)", True),
    "grows": ("p.kept.append(bytearray(100000))", False),
    "annotates much": ("return {'annotations': {'big': 'x' * 100000}}", False),
    "posts much": ("[post(p, topic) for _ in range(50)]", False),
    "changes its handlers": ("p.add_handler('job.state.run', callback)", False),
    "stops the reactor": ("p.handle.reactor_stop_error()", True),
    "runs a reactor": ("p.handle.reactor_run()", True),
    "waits for the job manager": ("p.handle.rpc('job-manager.getinfo').get()", True),
    "refuses": ("return -1", True),
}
SOURCE = """\
import os, signal, subprocess, sys, threading
from flux.jobtap import CURRENT_JOB
def plugin_init(p):
    p.kept = []
    for topic in {topics!r}:
        p.add_handler(topic, callback)
    p.add_handler("job.new", new) if "job.new" not in {topics!r} else None
def new(p, topic, args):
    p.job_subscribe(CURRENT_JOB)
def other(p):
    try:
        p.reprioritize_all()
    except OSError:
        pass
def post(p, topic):
    try:
        p.event_post(CURRENT_JOB, "campaign", {{"topic": topic}})
    except OSError:
        pass
def callback(p, topic, args):
    {body}
"""
FIRST_LINE, LAST_LINE = 20, 30


def tries(inst, topic, payload):
    """Send a request; a plugin may refuse it. Returns whether it has not, and the answer."""
    try:
        return True, inst.rpc(topic, payload)
    except OSError:
        return False, None


@pytest.mark.parametrize("topics", [MAY_REFUSE, IS_LOGGED], ids=["may-refuse", "is-logged"])
@pytest.mark.parametrize("deed", DEEDS)
def test_deeds_that_no_plugin_should_do(inst, tmp_path, deed, topics, auto):
    body, in_log = DEEDS[deed]
    path = tmp_path / "deed.py"
    path.write_text(SOURCE.format(topics=topics, body=body))
    spec = {"jobspec": jobspec(run_duration=1), "urgency": 16, "flags": 0}
    is_loaded, _ = tries(inst, "job-manager.jobtap", {"load": str(path)})
    submitted = [tries(inst, "job-ingest.submit", spec) for _ in range(4)]
    ids = [answer["id"] for taken, answer in submitted if taken]
    for id in ids[:1]:
        tries(inst, "job-manager.raise", {"id": id, "type": "cancel", "severity": 0})
    inst.advance(5)
    tries(inst, "job-manager.jobtap-query", {"name": "deed.py"})
    if is_loaded:
        inst.jobtap(remove="deed.py")
    inst.advance(5)
    assert {inst.state(id) for id in ids} <= {INACTIVE}
    # A plugin's fault affects no later job: the state is as before.
    later = inst.submit(run_duration=1)
    inst.advance(5)
    assert inst.events(later)[-1] == "clean"
    if topics is IS_LOGGED:
        assert is_loaded and len(ids) == 4
        lines = [
            int(line) for line in re.findall(r"\(deed\.py:(\d+) in ", "\n".join(inst.logged()))
        ]
        assert bool(lines) == in_log and all(FIRST_LINE <= line <= LAST_LINE for line in lines)
