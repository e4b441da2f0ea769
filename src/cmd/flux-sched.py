#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command ``flux sched``; its code is in flux/scheduler/command/."""

import sys

from flux.scheduler.command.cli import main

sys.exit(main())
