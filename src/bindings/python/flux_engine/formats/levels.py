# SPDX-License-Identifier: LGPL-3.0-or-later
"""Levels of log messages, as syslog counts them."""

LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
LOG_EMERG, LOG_ALERT, LOG_CRIT, LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG = range(8)
