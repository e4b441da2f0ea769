#!/bin/sh

test_description='Nothing that a Python jobtap plugin does holds the job manager or its jobs for good'

. "$(dirname "$0")/sharness.sh"
test -n "$REAL_FLUX" || { skip_all="no real Flux; t/python/jobs/test_jobtap_bounds.py is for the embedded instance"; test_done; }
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
test_under_flux 1 job

# plugin NAME: a file NAME.py from standard input
plugin() {
    cat >$1.py
}
# load NAME, removed NAME
load() {
    flux jobtap load $1.py
}
removed() {
    flux jobtap remove $1.so
}
# logged TEXT: the log gets such a line
logged() {
    test_wait_until "flux dmesg | grep -q \"$1\"" || { flux dmesg; return 1; }
}
# ended ID...: the jobs come to their end
ended() {
    for id; do flux job wait-event -t 20 $id clean >/dev/null || { flux job eventlog $id; return 1; }; done
}
# finishes ID: how many prologs and epilogs were finished
finishes() {
    flux job eventlog $1 | grep -c "log-finish"
}

test_expect_success 'waiting in a callback for who waits for the job manager ends after a second' '
	plugin waits <<-EOT &&
	import flux, flux.kvs, flux.job
	def plugin_init(p):
	    p.tried = 0
	    p.add_handler("job.state.run", run)
	def tries(p, id):
	    payload = {"id": id, "keys": ["eventlog"], "flags": 0}
	    other = flux.Flux(p.handle.attr_get("local-uri"))
	    yield "get", lambda: p.handle.rpc("job-info.lookup", payload).get()
	    yield "get_str", lambda: p.handle.rpc("job-info.lookup", payload).get_str()
	    yield "wait_for", lambda: p.handle.rpc("job-info.lookup", payload).wait_for(0.25)
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
	flux dmesg -C && load waits && id=$(flux submit true) && ended $id && removed waits &&
	flux dmesg | sed -n "s/.*waits: //p" >actual && cat actual &&
	grep "^watch: 110 no answer within 1 second.*use then(callback)" actual &&
	grep "^result: 110 no answer within 1 second" actual &&
	grep "^recv: 35 .*use msg_watcher_create" actual &&
	grep "^get: was answered" actual && grep "^kvs: 2 " actual && test $(wc -l <actual) = 8
'
test_expect_success 'so does waiting for who never answers; the error names topic and time' '
	cat >silent.py <<-EOT &&
	import flux
	h = flux.Flux()
	h.service_register("silent").get()
	w = h.msg_watcher_create(lambda *args: None, flux.constants.FLUX_MSGTYPE_REQUEST, "silent.*")
	w.start()
	print("ready", flush=True)
	h.reactor_run()
	EOT
	flux python silent.py >silent.out & 
	silent=$! &&
	test_wait_until "grep -q ready silent.out" &&
	plugin asks <<-EOT &&
	def plugin_init(p):
	    p.add_handler("plugin.query", query)
	    for how in (lambda f: f.get(), lambda f: f.get_str(), lambda f: f.wait_for(0.25), lambda f: f.wait_for()):
	        try:
	            how(p.handle.rpc("silent.ask", {}))
	        except OSError as exc:
	            p.handle.log(6, f"asks: {exc.errno} {exc.strerror}")
	def query(p, topic, args):
	    p.handle.rpc("silent.ask", {}).get()
	EOT
	flux dmesg -C && load asks &&
	flux dmesg | sed -n "s/.*asks: //p" >actual && cat actual &&
	test $(grep -c "^110 silent.ask: no answer within 1 second, .*then(callback)" actual) = 3 &&
	test $(grep -c "^110 silent.ask: no answer within 0.25 seconds" actual) = 1 &&
	test_must_fail flux jobtap query asks.so &&
	logged "asks.py: plugin.query: silent.ask: no answer within 1 second" &&
	removed asks && kill $silent
'
for kind in prolog epilog; do
    topic=job.state.run; test $kind = prolog || topic=job.state.cleanup
    test_expect_success "200 ${kind}s that nobody finishes end with the plugin" '
	plugin open <<-EOT &&
	def plugin_init(p):
	    p.add_handler("$topic", start)
	def start(p, topic, args):
	    for i in range(200):
	        p.${kind}_start(f"number {i}")
	EOT
	flux dmesg -C && load open && ids=$(flux submit --cc=1-3 true) &&
	flux job wait-event -t 20 $(echo $ids | cut -d" " -f1) $kind-start &&
	removed open && ended $ids &&
	for id in $ids; do
	    test $(finishes $id) = 200 || test $(finishes $id) = 0 || return 1
	done &&
	test $(finishes $(echo $ids | cut -d" " -f1)) = 200 &&
	logged "jobtap: plugin open.py was removed: .*${kind}s of its jobs finished in its place" &&
	flux run true
	'
    test_expect_success "a callback that raises leaves no $kind open" '
	plugin between <<-EOT &&
	def plugin_init(p):
	    p.add_handler("$topic", start)
	def start(p, topic, args):
	    p.${kind}_start("one")
	    p.${kind}_start("two")
	    raise ValueError("in between")
	EOT
	flux dmesg -C && load between && ids=$(flux submit --cc=1-3 true) && ended $ids && removed between &&
	for id in $ids; do test $(finishes $id) = 2 || return 1; done &&
	logged "between.py: $topic: ValueError: in between (between.py:6 in start)" &&
	logged "between.py: $topic failed: 2 ${kind}s of its jobs finished in its place" &&
	flux job eventlog $id | grep "exception type=\"$kind\".*between.py: $topic failed" &&
	flux run true
	'
done
test_done
