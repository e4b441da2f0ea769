#!/usr/bin/env python3
"""The command ``flux sched``; what it does is in flux/scheduler/command/."""

import sys

from flux.scheduler.command.cli import main

sys.exit(main())
