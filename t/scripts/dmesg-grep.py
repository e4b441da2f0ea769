#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Follow the broker's log until a line matches: dmesg-grep.py [-t SEC] [-v] PATTERN.

Exit code 0 as soon as one does (lines from before count), 1 and "Timeout!" when SEC seconds (1) have passed.
"""

import argparse
import os
import re
import selectors
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-t", "--timeout", type=float, default=1.0)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("pattern")
    options = parser.parse_args()
    pattern = re.compile(options.pattern)
    end = time.monotonic() + options.timeout
    log = subprocess.Popen(["flux", "dmesg", "--follow"], stdout=subprocess.PIPE)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(log.stdout, selectors.EVENT_READ)
            rest = b""
            while ready.select(max(0.0, end - time.monotonic())):
                chunk = os.read(log.stdout.fileno(), 65536)
                if not chunk:
                    break
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace")
                    if options.verbose:
                        print(text, file=sys.stderr)
                    if pattern.search(text):
                        print(text)
                        return 0
    finally:
        log.kill()
        log.wait()
    print("Timeout!", file=sys.stderr)
    return 1


sys.exit(main())
