# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's own rules, as plugins, in load order."""

from flux_embedded.services.job_manager.jobtap.builtins import (
    begin_time,
    dependency_after,
    dependency_singleton,
    history,
    limits,
    post_event,
    priority_default,
    update_duration,
    update_queue,
    validate_duration,
)

BUILTINS = (
    (".priority-default", priority_default.plugin_init),
    (".limit-job-size", limits.job_size_init),
    (".limit-duration", limits.duration_init),
    (".dependency-after", dependency_after.plugin_init),
    (".dependency-singleton", dependency_singleton.plugin_init),
    (".begin-time", begin_time.plugin_init),
    (".validate-duration", validate_duration.plugin_init),
    (".update-duration", update_duration.plugin_init),
    (".history", history.plugin_init),
    (".post-event", post_event.plugin_init),
    (".update-queue", update_queue.plugin_init),
)
