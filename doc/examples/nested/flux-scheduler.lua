-- SPDX-License-Identifier: LGPL-3.0-or-later
-- For /etc/flux/shell/lua.d: jobs that are Flux instances find the schedulers of flux-scheduler.

local lib = "/opt/flux-scheduler/current/lib/flux-scheduler"
local nested = "/etc/flux/nested"

shell.prepend_path("FLUX_PYTHONPATH_PREPEND", lib .. "/bindings/python")
-- All three, whichever is the usual one: flux-core's own schedulers do not work with this library.
for _, name in ipairs({"sched-fifo", "sched-simple", "sched-backfill"}) do
    shell.prepend_path("FLUX_MODULE_PATH_PREPEND", lib .. "/modules/" .. name)
end
-- Which of them is taken: not in /etc/flux/modprobe, which the system instance reads as well.
shell.prepend_path("FLUX_MODPROBE_PATH_APPEND", nested)
