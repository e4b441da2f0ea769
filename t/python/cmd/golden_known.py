# SPDX-License-Identifier: LGPL-3.0-or-later
"""What of the recorded commands need not be alike in an embedded instance, and why."""

FAKE_RANKS = "a real host has no broker on fake ranks: real processes, hosts and drains there fail"
GAPS = "builds on commands of the recording that were left out"
PASSING = "recorded while the job was on its way"
CONTENT = "no content store: no blobrefs, tree objects, dumps"
PMI = "no PMI, and only the variables of a job that the instance looks at"
SHELL = "the job shell's own messages and events"
TEXT = "help texts and the wording of errors in the configuration of this project's own parts"
CORES = "the machine that recorded has other cores and host names"
STATS = "stats of services other than job-manager, resource and the schedulers are their own"
COUNTS = "counts the jobs of scenarios before, some of which are not here"
WRAPPER = "how the C library's types and functions are called"
LEFT_OUT = "commands and options that neither a scheduler nor its tests need"
KVS = "a job has no namespace of its own"
GONE = "a rank that is taken away has no broker process that could fail"

#: (pattern in the command or what it printed, why): such lines need not be alike.
RULES = [
    (
        r"flux (bulksubmit|env|lsattr|ping|proxy|overlay|uptime|event|logger|post-job-event|help|.* (-h|--help))\b"
        r"|flux kvs (?!get|put|unlink)"
        r"|flux kvs get .*(-w|--watch|-W|--waitcreate|-[AN]|--namespace)|flux kvs put .*(-[sN]|--namespace)"
        r"|flux R (?!encode)"
        r"|flux job (memo|stats|list(?!-ids)|timeleft.* -H|taskmap|hostpids|namespace|raiseall|killall)\b",
        LEFT_OUT,
    ),
    (
        r"node failure on \(null\)|housekeeping: \(null\)|host constraint contains invalid",
        FAKE_RANKS,
    ),
    (r"kvs .*--blobref|kvs getroot|kvs (get|put) -t|sha1-", CONTENT),
    (r"flux pmi |PMI_RANK", PMI),
]

#: Commands whose lines come in no order.
UNORDERED = r"flux queue (status|list|start|stop|enable|disable)|queues\.toml"

#: scenario -> [(pattern in the command, why)]
SET_ASIDE = {
    "job-raiseall": [(r"sleep 0.5; flux jobs", LEFT_OUT)],
    "post-job-event": [(r"flux job eventlog", LEFT_OUT)],
    "kvs-cmds": [(r"kvs ls|kvs put -A", LEFT_OUT)],
    "dmesg-logger": [(r"flux dmesg", LEFT_OUT)],
    "api-resource": [(r".", FAKE_RANKS)],
    "api-journal": [(r".", GAPS)],
    "adm-housekeeping": [
        (r"flux resource list -no '\{state\} \{nnodes\}'|flux dmesg", FAKE_RANKS),
    ],
    "adm-perilog": [(r"flux job eventlog", "the example plugin perilog.py has words of its own")],
    "batch-nested": [
        (r"cat w\.out", TEXT),
        (r"exception\.type.*y\.out", "recorded on a machine where the instance was not up in 2s"),
    ],
    "job-attach": [(r"--tail=1", "the last of what several tasks wrote at once")],
    "job-info": [(r"kvs dir -d", KVS)],
    "job-last": [(r"flux job last '\[|flux job last 10000", GAPS)],
    "job-list": [
        (r"flux job list -a", GAPS),
        (r"\) --wait-state", "options may come after arguments"),
    ],
    "job-purge": [(r"flux job purge$|purge .*--num-limit=2$", GAPS)],
    "job-tree-env": [(r"FLUX_KVS_NAMESPACE", KVS)],
    "job-waitevent": [(r"eventlog -p exec", SHELL)],
    "jobs-formats": [
        (r"flux jobs .*\$A|sort:-urgency|--sort=-priority|--json -a", GAPS),
    ],
    "q-stop-start": [(r"flux queue start --all -v", FAKE_RANKS)],
    "q-submit": [
        (r"\{nodelist\}|flux job info \$K R", FAKE_RANKS),
    ],
    "resource-status-opts": [
        (r"status -s all", GAPS),
        (r"flux resource drain|flux resource undrain|--skip-empty|eventlog", FAKE_RANKS),
    ],
    "sched-hello-running": [(r".", FAKE_RANKS)],
    "sched-modules": [
        (r"flux dmesg", "messages of two processes may change places; a line of a scenario before")
    ],
    "start-hwloc-tree": [(r"hwloc-xml-path=/nosuch|amend-r=foo", TEXT)],
    "start-rc": [(r"--personality", "an option of our own")],
    "start-opts": [
        (r"--wrap=", "an embedded instance has no broker process of its own to wrap"),
        (r"content\.dump|statedir", CONTENT),
        (r"test-rundir=\$PWD/rd", GAPS),
    ],
    "start-opts2": [
        (r"fake-resources\.nnodes=[0x]", TEXT),
    ],
    "sub-dependencies": [(r"flux job eventlog \$K", PASSING)],
    "sub-env": [
        (r"env \| grep|TMPDIR \| sed", PMI),
    ],
    "sub-label": [(r"-vvv true", "two streams of events, in the order in which they come")],
    "sub-requires": [(r"flux jobs -no '\{nodelist\} \{ranks\}'", FAKE_RANKS)],
    "sub-shellopts": [(r"verbose=1", SHELL)],
    "sub-taskmap-event": [(r".", FAKE_RANKS)],
    "update-duration": [
        (r"duration=1[sh]$|wait-event -t8 \$A clean", "as much time had gone by as there had"),
    ],
    "validator": [(r"job-validator", "no validators but the two that are built in")],
}

SET_ASIDE.update(
    {
        # recordings of our own
        "submit": [
            (r"job wait-event -t5 .* exception|--stats -q|urgency \$J default", FAKE_RANKS),
        ],
        "resources": [(r"flux resource (list|status)", FAKE_RANKS)],
        "nodes": [
            (r"flux resource (status|drain 3 gone)", LEFT_OUT),
            (
                r"sleep 0.4; flux jobs",
                "the scheduler says why a job waits in its first second, too",
            ),
            (r"flux resource list -no '\{state\} \{ranks\}'", GONE),
            (r"flux ping -c1 3$", GONE),
        ],
        "options": [(r"overlay disconnect", GONE)],
        "various": [
            (r"flux dmesg -c ", LEFT_OUT),
            (r"flux proxy .*exit 4", "the exit status of what runs in the instance is kept"),
        ],
        "submit-raw": [(r"jq", "the validator has a rule more, or less")],
        "mock": [(r"exec\.test", "the reason is whatever errno was")],
        "own-jobs-default": [
            (r"annotations|flux jobs \| sed", "what is told of a job is told after a second")
        ],
        "resource-reload": [(r"resource status", FAKE_RANKS)],
    }
)

#: scenario of many calls -> [(pattern of a line of output, why)]: such lines are left out on both sides
PARTS = {
    "api-futures": [(r'^bytes -> .*"route"', "routes differ from run to run")],
    "api-handle": [(r"^(C signature|Arguments|Handle type|Name):", WRAPPER)],
    "api-imports": [
        (r"^flux\.security ", "the module is there, and the library it is written on is not")
    ],
    "api-jobspec": [
        (r"^attrs ", "the environment of the machine that recorded"),
        (r"^invalid ", "the package names any of the keys that are missing, each run another"),
    ],
    "api-wait": [(r"^any none ", GAPS)],
    "rpc-jobmgr": [(r"^job-manager\.stats-get", COUNTS)],
    "rpc-broker": [
        (r"^(broker|heartbeat|overlay|job-exec|content)\.stats-get|^broker\.rusage", STATS),
        (r"^event\.publish .*seq", COUNTS),
        (r"^attr\.list|^module\.list", "attributes and modules of its own"),
        (r"^rexec\.|^cron\.", "no remote execution and no cron behind their names"),
        (r'"route"|"duration"', "routes and durations differ from run to run"),
    ],
    "rpc-exec": [(r"^job-exec\.stats-get", STATS)],
    "rpc-ingest": [(r"^job-ingest\.stats-get", STATS)],
    "rpc-stream": [(r"^heaptrace", "entries of the log are objects, not lines of text")],
    "rpc-joblist": [(r"^job-list\.stats-get", COUNTS)],
}
