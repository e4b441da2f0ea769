"""``flux simulate`` as a user runs it, and the tables it writes."""

import contextlib
import csv
import io
import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from flux.simulate.command import main
from flux_engine.command.errors import call

TOP = Path(__file__).resolve().parents[3]
FLUX = TOP / "src" / "cmd" / "flux"


def words(line, *more):
    """The words of a command line, and more words."""
    return [*(shlex.split(line) if isinstance(line, str) else [str(line)]), *map(str, more)]


def flux(*args, code=0, cwd=".", env=None):
    """Run a command line, whose first argument may be many words, in a child of this process, which has read the modules.
    Returns its output, as text."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            os.environ.update(env or {})
            os.chdir(cwd)
            for stream, number in ((out, 1), (err, 2)):
                os.dup2(stream.fileno(), number)
            sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))
            status = 70
            try:
                status = call("simulate", main, words(*args))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        texts = [stream.seek(0) or stream.read() for stream in (out, err)]
    done = subprocess.CompletedProcess(args, os.waitstatus_to_exitcode(status), *texts)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr or code, done.stderr
    return done


def flux_here(*args, code=0):
    """The same in this process, for commands that run no scheduler."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = call("simulate", main, words(*args))
    done = subprocess.CompletedProcess(args, status, out.getvalue(), err.getvalue())
    assert status == code, done.stdout + done.stderr
    return done


def rows(directory):
    """The lines of a result's jobs.csv."""
    with open(directory / "jobs.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def write_rows(directory, table):
    """Write them again."""
    with open(directory / "jobs.csv", "w", newline="") as stream:
        writer = csv.DictWriter(stream, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def first_scheduler(each_pass="", more=""):
    """The text of the guide's first scheduler, with statements at the beginning of each pass, and further members."""
    text = (TOP / "doc" / "examples" / "first.py").read_text()
    begin = "    def schedule(self):\n"
    assert begin in text
    text = text.replace(begin, begin + textwrap.indent(textwrap.dedent(each_pass), 8 * " ") + "\n")
    return text.replace("\n\n\ndef mod_main", f"\n\n{more}\n\ndef mod_main")
