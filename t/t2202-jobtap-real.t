#!/bin/sh

test_description='Python jobtap plugins in the job manager of a real Flux'

. "$(dirname "$0")/sharness.sh"
test -n "$REAL_FLUX" || { skip_all="no real Flux"; test_done; }
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
# The job manager must ignore the caller's PYTHONPATH.
mkdir -p "$SHARNESS_TEST_DIRECTORY/jobtap-pythonpath"
echo "raise RuntimeError('read from PYTHONPATH')" >"$SHARNESS_TEST_DIRECTORY/jobtap-pythonpath/colorsys.py"
PYTHONPATH=$SHARNESS_TEST_DIRECTORY/jobtap-pythonpath${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
test_under_flux 2 job

python_so=$FLUX_JOBTAP_PYTHON
# Flux's own command, not ours.
jobtap() {
    FLUX_EXEC_PATH_PREPEND= flux jobtap "$@"
}
# plugin NAME: a file NAME.py from standard input, and NAME.so beside it
plugin() {
    cat >$1.py && ln -sf "$python_so" $1.so
}
# logged TEXT: the log gets such a line
logged() {
    test_wait_until "flux dmesg | grep -q \"$1\""
}

test_expect_success 'load python.so with file=, and arguments' '
	plugin query <<-EOT &&
	def plugin_init(p):
	    p.add_handler("plugin.query", lambda p, topic, args: {"args": p.args, "mine": p.path})
	EOT
	jobtap load $python_so file=$(pwd)/query.py k=v n=3 &&
	test "$(jobtap list)" = python.so &&
	jobtap query python.so >out &&
	jq -e ".args == {\"k\": \"v\", \"n\": 3}" out &&
	jq -e ".path == \"$python_so\"" out &&
	jq -e ".mine == \"$(realpath query.py)\"" out &&
	test_must_fail jobtap load $python_so file=$(pwd)/query.py 2>err &&
	grep "python.so already loaded" err &&
	jobtap remove python.so
'
test_expect_success 'load by a link beside the file: names are native, file= is the plugin'\''s own' '
	jobtap load $(pwd)/query.so file=mine &&
	test "$(jobtap list)" = query.so &&
	jobtap query query.so | jq -e ".args.file == \"mine\"" &&
	test_must_fail jobtap load $(pwd)/query.so 2>err &&
	grep "query.so already loaded" err &&
	jobtap load --remove=query.so $(pwd)/query.so &&
	jobtap remove query.so &&
	test_must_fail jobtap query query.so
'
test_expect_success 'plugin_init of a duplicate does not run' '
	plugin twice <<-EOT &&
	def plugin_init(p):
	    p.handle.log(6, "twice: init")
	    p.service_register("ping", lambda p, msg: p.handle.respond(msg, {}))
	EOT
	jobtap load $(pwd)/twice.so &&
	test_must_fail jobtap load $(pwd)/twice.so &&
	test $(flux dmesg | grep -c "twice: init") = 1 &&
	flux python -c "import flux; flux.Flux().rpc(\"job-manager.twice.ping\").get()" &&
	jobtap remove twice.so
'
test_expect_success 'a copy of python.so does as well as a link' '
	cp query.py copied.py && cp "$python_so" copied.so &&
	jobtap load $(pwd)/query.so && jobtap load $(pwd)/copied.so x=1 &&
	jobtap query copied.so | jq -e ".args.x == 1" && jobtap remove copied.so && jobtap remove query.so &&
	jobtap load $(pwd)/copied.so && jobtap remove copied.so
'
# refused TEXT SOURCE: a plugin of this source is refused with this text, and nothing is loaded
refused() {
	printf "$2\n" >refused.py && ln -sf "$python_so" refused.so &&
	test_must_fail jobtap load $(pwd)/refused.so 2>err &&
	cat err && grep "$1" err && test -z "$(jobtap list)"
}
test_expect_success 'each way to fail has its text' '
	refused "refused.py: no function plugin_init(p) in it" "x = 1" &&
	refused "refused.py: SyntaxError: .*refused.py, line 1" "def plugin_init(p:" &&
	refused "ModuleNotFoundError: No module named .nosuch. (refused.py:1" "import nosuch" &&
	refused "ValueError: bad luck (refused.py:2 in plugin_init)" "def plugin_init(p):\n    raise ValueError(\"bad luck\")" &&
	refused "refused.py: not today" "def plugin_init(p):\n    p.error(\"not today\")" &&
	refused "SystemExit: 3" "def plugin_init(p):\n    raise SystemExit(3)" &&
	refused "KeyboardInterrupt" "def plugin_init(p):\n    raise KeyboardInterrupt" &&
	for deed in "os._exit(3)" "os.abort()" "os.execv(\"/bin/true\", [\"true\"])" "signal.alarm(1)"; do
		refused "refused.py: .*: a plugin may not do that" "import os, signal\ndef plugin_init(p):\n    $deed" || return 1
	done &&
	refused "job-manager plugin .refused.py" "def plugin_init(p):\n    return -1" &&
	refused "refused.py: I want another one" "def plugin_init(p):\n    p.add_handler(\"conf.update\", lambda p, t, a: p.error(\"I want another one\"))" &&
	rm refused.py &&
	test_must_fail jobtap load $(pwd)/refused.so 2>err && grep "refused.py: No such file" err &&
	test_must_fail jobtap load $python_so 2>err && grep "which file" err &&
	test_must_fail jobtap load $python_so file=query.py 2>err && grep "must be absolute" err &&
	test_must_fail jobtap load $python_so file=/no/such/file.py 2>err && grep "/no/such/file.py: No such file" err
'
test_expect_success 'a file that others can write is not run' '
	echo "def plugin_init(p): pass" >writable.py && chmod 666 writable.py &&
	test_must_fail jobtap load $python_so file=$(pwd)/writable.py 2>err &&
	grep "others can write it" err &&
	chmod 644 writable.py && jobtap load $python_so file=$(pwd)/writable.py && jobtap remove python.so
'
test "$(id -u)" = 0 && test_set_prereq ROOT
test_expect_success ROOT 'nor is one of another user' '
	chown 65534 writable.py &&
	test_must_fail jobtap load $python_so file=$(pwd)/writable.py 2>err &&
	grep "it belongs to user 65534" err
'
test_expect_success 'PYTHONPATH is ignored' '
	plugin path <<-EOT &&
	import colorsys
	def plugin_init(p):
	    colorsys.rgb_to_hsv(0, 0, 0)
	EOT
	jobtap load $(pwd)/path.so && jobtap remove path.so
'
test_expect_success 'flux jobtap load NAME.py, with the command of this package' '
	flux jobtap load query.py a=1 &&
	test "$(flux jobtap list)" = query.so &&
	flux jobtap query query.py | jq -e ".args.a == 1" &&
	test_must_fail flux jobtap load ./query.py 2>err && grep "already loaded" err &&
	flux jobtap load -r query.py query.py && flux jobtap remove query.py && test -z "$(flux jobtap list)" &&
	test_must_fail flux jobtap load nosuch.py 2>err && grep "nosuch.py not found" err &&
	flux jobtap load alloc-bypass.so && flux jobtap remove alloc-bypass.so
'
test_expect_success 'a child process that comes back from a callback is ended' '
	plugin forks <<-EOT &&
	import os
	def child(p, how):
	    ours, theirs = os.pipe()  # the broker itself waits for all child processes
	    if not os.fork():
	        os.close(ours)
	        if how == "raises":
	            raise ValueError("in the child")
	        return
	    os.close(theirs)
	    os.read(ours, 1)  # until the child has ended
	    os.close(ours)
	    p.handle.log(6, f"forks: {how}: over")
	def plugin_init(p):
	    child(p, "init")
	    p.add_handler("job.validate", validate)
	    p.add_handler("job.state.run", lambda p, topic, args: child(p, "raises"))
	    p.handle.timer_watcher_create(0.01, lambda *args: child(p, "timer")).start()
	def validate(p, topic, args):
	    child(p, "returns")
	EOT
	flux dmesg -C &&
	jobtap load $(pwd)/forks.so && run_timeout 120 flux run true && logged "forks: timer: over" &&
	jobtap remove forks.so &&
	flux dmesg | grep -o "forks: [a-z]*: over" | sort >out &&
	cat >expected <<-EOT &&
	forks: init: over
	forks: raises: over
	forks: returns: over
	forks: timer: over
	EOT
	test_cmp expected out && run_timeout 120 flux run true
'
test_expect_success 'exceptions of timers, futures and services are only logged' '
	plugin later <<-EOT &&
	def plugin_init(p):
	    p.handle.timer_watcher_create(0.0, timer).start()
	    p.handle.rpc("kvs.ping", {"seq": 1, "pad": ""}).then(answer)
	    p.service_register("fail", lambda p, msg: 1 / 0)
	    p.service_register("refuse", refuse)
	def timer(h, w, revents, args):
	    raise KeyboardInterrupt
	def answer(f):
	    raise LookupError("what now")
	def refuse(p, msg):
	    raise PermissionError(1, "not you")
	EOT
	cat >call.py <<-EOT &&
	import flux, sys
	try:
	    flux.Flux().rpc(sys.argv[1]).get()
	except OSError as exc:
	    print(exc.errno, exc.strerror)
	EOT
	flux dmesg -C && jobtap load $(pwd)/later.so &&
	flux python call.py job-manager.later.fail | grep "5 later.py: division by zero" &&
	flux python call.py job-manager.later.refuse | grep "1 not you" &&
	logged "later.py: timer: KeyboardInterrupt" &&
	logged "later.py: response to kvs.ping: LookupError" &&
	logged "later.py: service later.fail: ZeroDivisionError" &&
	flux run true && jobtap remove later.so &&
	flux python call.py job-manager.later.fail | grep "^38"
'
test_expect_success 'removal ends timers, services, subscriptions and futures, and frees auxiliary data of jobs' '
	plugin gone <<-EOT &&
	import builtins
	from flux.jobtap import CURRENT_JOB
	builtins.kept = []
	def plugin_init(p):
	    builtins.kept.append(p)
	    p.handle.timer_watcher_create(0.01, lambda *a: p.handle.log(6, "gone: tick"), repeat=0.01).start()
	    builtins.kept.append(p.handle.rpc("kvs.ping", {"seq": 1, "pad": ""}).then(lambda f: p.handle.log(6, "gone: future")))
	    p.add_handler("job.new", new)
	    p.add_handler("job.event.*", lambda p, topic, args: p.handle.log(6, "gone: event"))
	    p.add_handler("plugin.exit", lambda p, topic, args: p.handle.log(6, "gone: exit"))
	def new(p, topic, args):
	    p.job_subscribe(CURRENT_JOB)
	    p.job_aux_set(CURRENT_JOB, "x", p.handle, lambda h: h.log(6, "gone: freed"))
	EOT
	plugin after <<-EOT &&
	import builtins
	def plugin_init(p):
	    other = builtins.kept[0]
	    for attempt in (lambda: other.reprioritize_all(), lambda: other.add_handler("x", print),
	                    lambda: other.handle.rpc("kvs.ping"), lambda: builtins.kept[1].get(),
	                    lambda: other.handle.timer_watcher_create(1, print), lambda: other.job_lookup(1)):
	        try:
	            attempt()
	        except OSError as exc:
	            assert "removed" in exc.strerror, exc
	        else:
	            p.error("a removed plugin still works")
	EOT
	jobtap load $(pwd)/gone.so &&
	id=$(flux submit --urgency=hold true) &&
	logged "gone: tick" && flux dmesg -C && jobtap remove gone.so &&
	logged "gone: freed" && logged "gone: exit" && flux dmesg -C &&
	flux cancel $id && flux job wait-event $id clean && sleep 0.1 &&
	flux dmesg >log && test_must_fail grep "gone:" log &&
	jobtap load $(pwd)/after.so && jobtap remove after.so
'
test_expect_success 'args are good after the callback' '
	plugin frozen <<-EOT &&
	import json
	def plugin_init(p):
	    p.kept = []
	    p.add_handler("job.validate", lambda p, topic, args: p.kept.append(args))
	    p.add_handler("job.state.sched", lambda p, topic, args: p.kept and json.dumps(dict(p.kept[0])) and None)
	    p.add_handler("plugin.query", lambda p, topic, args: {"kept": [dict(a) for a in p.kept]})
	EOT
	jobtap load $(pwd)/frozen.so && id=$(flux submit true) && flux job wait-event $id clean &&
	jobtap query frozen.so | jq -e ".kept[0].id == $(flux job id $id)" && jobtap remove frozen.so
'
test_expect_success 'a jobspec that was read is read anew once it is updated' '
	plugin cached <<-EOT &&
	from flux.jobtap import CURRENT_JOB
	def plugin_init(p):
	    for topic in ("job.validate", "job.state.depend", "job.update", "job.state.priority", "job.state.sched"):
	        p.add_handler(topic, note)
	def note(p, topic, args):
	    system = args["jobspec"]["attributes"]["system"]
	    p.handle.log(6, f"cached: {topic}: " + str(system.get("x")))
	    if topic == "job.state.depend":
	        p.jobspec_update({"attributes.system.x": 1})
	    if topic == "job.state.priority":
	        p.event_post(CURRENT_JOB, "jobspec-update", {"attributes.system.x": 2}) if system["x"] == 1 else None
	EOT
	flux dmesg -C && jobtap load $(pwd)/cached.so && flux run true && jobtap remove cached.so &&
	flux dmesg | sed -n "s/.*cached: //p" >actual &&
	cat >expected <<-EOT &&
	job.validate: None
	job.state.depend: None
	job.update: 1
	job.state.priority: 1
	job.update: 2
	job.state.sched: 2
	EOT
	test_cmp expected actual
'
test_expect_success 'an update of a callback that fails does not fall to the next job' '
	plugin half <<-EOT &&
	def plugin_init(p):
	    p.add_handler("job.validate", validate)
	def validate(p, topic, args):
	    if args["jobspec"]["attributes"]["system"].get("bad"):
	        p.jobspec_update({"attributes.system.leak": 1})
	        p.reject_job("bad")
	EOT
	jobtap load $(pwd)/half.so &&
	test_must_fail flux submit --setattr=bad=1 true &&
	id=$(flux submit true) && flux job wait-event $id clean &&
	flux job eventlog $id >log && test_must_fail grep jobspec-update log && jobtap remove half.so
'
test_expect_success 'endless posting is refused, and says which plugin' '
	plugin endless <<-EOT &&
	from flux.jobtap import CURRENT_JOB
	def plugin_init(p):
	    p.add_handler("job.state.sched", lambda p, topic, args: p.event_post(
	        CURRENT_JOB, "urgency", {"urgency": 16, "userid": args["userid"]}))
	EOT
	flux dmesg -C && jobtap load $(pwd)/endless.so &&
	id=$(flux submit true) && flux job wait-event -t 120 $id clean &&
	logged "endless.py has posted urgency to job" && jobtap remove endless.so
'
test_expect_success 'a fatal exception in job.new takes effect once the job is valid' '
	plugin fatal <<-EOT &&
	from flux.jobtap import CURRENT_JOB
	def plugin_init(p):
	    p.add_handler("job.new", lambda p, topic, args: p.raise_exception(CURRENT_JOB, "policy", 0, "no"))
	EOT
	jobtap load $(pwd)/fatal.so && id=$(flux submit true) && flux job wait-event -t 120 $id clean &&
	flux job eventlog $id | grep "exception type=\"policy\" severity=0 note=\"no\"" && jobtap remove fatal.so
'
test_expect_success 'R without the flag is refused with a text; with it the job runs without a scheduler' '
	plugin bypass <<-EOT &&
	import json
	from flux.jobtap import CURRENT_JOB
	def plugin_init(p):
	    p.add_handler("job.validate", validate)
	    p.add_handler("job.state.sched", lambda p, topic, args: {"R": json.loads(p.args["R"])})
	def validate(p, topic, args):
	    if args["jobspec"]["attributes"]["system"].get("flag"):
	        p.job_set_flag(CURRENT_JOB, "alloc-bypass")
	EOT
	flux dmesg -C &&
	FLUX_EXEC_PATH_PREPEND= flux python - <<-EOT &&
	import flux
	R = "$(flux R encode -r1 | sed "s/\"/\\\\\"/g")"
	flux.Flux().rpc("job-manager.jobtap", {"load": "$(pwd)/bypass.so", "conf": {"R": R}}).get()
	EOT
	id=$(flux submit true) && flux job wait-event -t 120 $id clean &&
	logged "bypass.py: job.state.sched: R without the flag alloc-bypass" &&
	flux job eventlog $id >log && test_must_fail grep bypass log &&
	flux module remove sched-simple &&
	id=$(flux submit --setattr=flag=1 true) && flux job wait-event -t 120 $id clean &&
	flux job eventlog $id | grep "alloc bypass=true" &&
	flux job info $id R | jq -e ".execution.R_lite[0].rank == \"1\"" &&
	flux module load sched-simple && jobtap remove bypass.so
'
test_expect_success 'a wait in a callback for a service that waits for the job manager ends after a second' '
	plugin waits <<-EOT &&
	import flux, flux.kvs, flux.job
	def plugin_init(p):
	    p.add_handler("job.state.run", run)
	def tries(p, id):
	    payload = {"id": id, "keys": ["eventlog"], "flags": 0}
	    other = flux.Flux(p.handle.attr_get("local-uri"))
	    yield "get", lambda: p.handle.rpc("job-info.lookup", payload).get()
	    yield "other", lambda: other.rpc("job-info.lookup", payload).get()
	    yield "watch", lambda: list(flux.job.event_watch(p.handle, id))
	    yield "result", lambda: flux.job.result(other, id)
	    yield "kvs", lambda: flux.kvs.get(other, "never.there") and 0
	    yield "recv", lambda: other.recv()
	def run(p, topic, args):
	    for name, attempt in tries(p, args["id"]):
	        try:
	            attempt()
	        except OSError as exc:
	            p.handle.log(6, f"waits: {name}: {exc.errno} {exc.strerror}")
	        else:
	            p.handle.log(6, f"waits: {name}: was answered")
	EOT
	flux dmesg -C && jobtap load $(pwd)/waits.so &&
	id=$(flux submit true) && flux job wait-event -t 120 $id clean && jobtap remove waits.so &&
	flux dmesg | sed -n "s/.*waits: //p" >actual && cat actual &&
	grep "^watch: 110 no answer within 1 second.*use then(callback)" actual &&
	grep "^result: 110 no answer within 1 second" actual &&
	grep "^recv: 35 .*use msg_watcher_create" actual &&
	grep "^get: was answered" actual && grep "^kvs: 2 " actual && test $(wc -l <actual) = 6
'
for kind in prolog epilog; do
    topic=job.state.run; test $kind = prolog || topic=job.state.cleanup
    test_expect_success "an open ${kind} ends if its callback raises, or the plugin is removed" '
	plugin open <<-EOT &&
	def plugin_init(p):
	    p.add_handler("$topic", start)
	def start(p, topic, args):
	    p.${kind}_start("one")
	    p.${kind}_start("two")
	    if args["jobspec"]["attributes"]["system"].get("raise"):
	        raise ValueError("in between")
	EOT
	flux dmesg -C && jobtap load $(pwd)/open.so &&
	id=$(flux submit --setattr=raise=1 true) && flux job wait-event -t 120 $id clean &&
	flux job eventlog $id >raised && test $(grep -c "$kind-finish" raised) = 2 &&
	grep "exception type=\"$kind\".*open.py: $topic failed" raised &&
	logged "open.py: $topic: ValueError: in between (open.py:7 in start)" &&
	logged "open.py: $topic failed: 2 ${kind}s of its jobs finished in its place" &&
	id=$(flux submit true) && flux job wait-event -t 120 $id $kind-start && jobtap remove open.so &&
	flux job wait-event -t 120 $id clean && test $(flux job eventlog $id | grep -c "$kind-finish") = 2 &&
	logged "jobtap: plugin open.py was removed: 2 ${kind}s of its jobs finished in its place"
    '
done
test_expect_success 'libraries with C parts, threads and processes work' '
	plugin heavy <<-EOT &&
	import ctypes, hashlib, json, sqlite3, ssl, subprocess, threading, yaml
	def plugin_init(p):
	    out = []
	    thread = threading.Thread(target=lambda: out.append(sqlite3.connect(":memory:").execute("select 1").fetchone()))
	    thread.start()
	    thread.join()
	    assert out == [(1,)], out
	    assert subprocess.run(["echo", "hello"], stdout=subprocess.PIPE).stdout == b"hello\n"
	    for i in range(20):
	        assert subprocess.run(["sh", "-c", "exit 7"]).returncode == 7
	    assert subprocess.run("kill -9 \$\$", shell=True).returncode == -9
	    process = subprocess.Popen(["sleep", "60"])
	    process.terminate()
	    assert process.wait() == -15
	    try:
	        subprocess.run(["no-such-program"])
	    except FileNotFoundError:
	        pass
	EOT
	jobtap load $(pwd)/heavy.so && jobtap remove heavy.so
'
test_expect_success 'several plugins at once; each can be loaded and removed 100 times' '
	for name in query path heavy frozen; do jobtap load $(pwd)/$name.so || return 1; done &&
	jobtap remove all &&
	cat >reload.py <<-EOT &&
	import flux, os
	h = flux.Flux()
	pid = int(h.attr_get("broker.pid"))
	def fds():
	    return len(os.listdir(f"/proc/{pid}/fd"))
	def cycle(n):
	    for _ in range(n):
	        h.rpc("job-manager.jobtap", {"load": "$(pwd)/gone.so"}).get()
	        h.rpc("job-manager.jobtap", {"remove": "gone.so"}).get()
	cycle(10)
	before = fds()
	cycle(100)
	assert fds() <= before, (before, fds())
	EOT
	flux python reload.py && flux run true
'
test_expect_success 'the job manager can be removed and loaded again, with plugins from the configuration' '
	plugin conf <<-EOT &&
	def plugin_init(p):
	    p.add_handler("plugin.query", lambda p, topic, args: p.args)
	EOT
	cat >conf.toml <<-EOT &&
	[[job-manager.plugins]]
	load = "$(pwd)/conf.so"
	conf = { a = 5 }
	EOT
	flux config load conf.toml &&
	for i in 1 2 3; do
	    flux module remove sched-simple && flux module remove job-exec && flux module remove job-list &&
	    flux module remove job-info && flux module remove job-ingest && flux module remove job-manager &&
	    flux module load job-manager && flux module load job-ingest && flux module load job-info &&
	    flux module load job-list && flux module load job-exec && flux module load sched-simple &&
	    jobtap query conf.so | jq -e ".a == 5" && flux run true || return 1
	done
'
test_expect_success 'a fresh instance starts with plugins from its configuration' '
	flux start --config-path=$(pwd)/conf.toml flux jobtap list >out && grep conf.so out
'
test_expect_success 'job-manager in a process of its own: the same, and a crash costs the process, not the broker' '
	plugin crash <<-EOT &&
	import ctypes
	def plugin_init(p):
	    p.add_handler("job.validate", lambda p, topic, args: ctypes.string_at(0))
	EOT
	cat >crash.sh <<-EOT &&
	for m in sched-simple job-exec job-list job-info job-ingest job-manager; do flux module remove \$m; done
	flux module load --exec job-manager && flux module load job-ingest && flux module load job-info &&
	flux module load job-list && flux module load job-exec && flux module load sched-simple || exit 1
	flux jobtap load $(pwd)/query.so x=1 && flux run true && flux jobtap remove query.so || exit 2
	flux jobtap load $(pwd)/crash.so || exit 3
	flux run true 2>err; echo "submit: \$?"
	flux getattr size >/dev/null && echo "the broker lives"
	for m in sched-simple job-exec job-list job-info job-ingest; do flux module remove -f \$m; done
	flux module load --exec job-manager && flux module load job-ingest && flux module load job-info &&
	flux module load job-list && flux module load job-exec && flux module load sched-simple || exit 4
	flux run true && echo "jobs run again"
	EOT
	FLUX_EXEC_PATH_PREPEND= flux start -Sbroker.module-nopanic=1 sh ./crash.sh >out 2>crash.err
	cat out crash.err &&
	grep "the broker lives" out && grep "jobs run again" out
'
test_done
