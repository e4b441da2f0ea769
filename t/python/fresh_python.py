# SPDX-License-Identifier: LGPL-3.0-or-later
"""Code in a separate interpreter, for tests of imports."""

import os
import subprocess
import sys
import textwrap


def run_in_fresh_python(code, *paths):
    """Run code with only these directories ahead of the standard library.

    Args:
        code (str): a program; it may be indented
        paths: directories for PYTHONPATH

    Returns:
        str: its output, without surrounding white space
    """
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "FLUX_URI")}
    env["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    done = subprocess.run(
        [sys.executable, "-B", "-c", textwrap.dedent(code)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
