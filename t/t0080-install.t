#!/bin/sh

test_description='configure, make, make install: in a directory of its own, with DESTDIR, for either host

From a copy of the source, so that the tree the other tests run from is left alone.
'

. "$(dirname "$0")/sharness.sh"

# Builds here take flux-python from the tree, not from the package index.
FLUX_PYTHON_COPY=$FLUX_SOURCE_DIR/.cache/flux-python && export FLUX_PYTHON_COPY

missing=
for tool in autoreconf automake make xz; do
	command -v $tool >/dev/null || missing="$missing $tool"
done
if test -n "$missing" || test -n "$FLUX_TEST_INSTALLED_PATH"; then
	skip_all="building takes$missing"
	test_done
fi
# Not the Python behind a real Flux: half of the tests configure the embedded instance, which takes greenlet and flux-python.
PYTHON=${TEST_PYTHON:-$FLUX_SOURCE_DIR/.venv/bin/python}
test -x "$PYTHON" || PYTHON=$(command -v python3)
"$PYTHON" -c 'import greenlet' 2>/dev/null && FLUX_PYTHON_COPY= PYTHON=$PYTHON "$FLUX_SOURCE_DIR/scripts/flux-python" "$FLUX_PYTHON_COPY" 2>/dev/null &&
	test_set_prereq GREENLET
unset CHECK_ARGS FLUX_BUILD_DIR FLUX_PYTHONPATH_PREPEND FLUX_SCHEDULER_PYTHON MAKEFLAGS MFLAGS MAKELEVEL
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/fi.XXXXXX") && export TMPDIR
cleanup "rm -rf '$TMPDIR'"

configure() {
	../src/configure PYTHON="$PYTHON" "$@" >configure.out 2>&1 || { cat configure.out; return 1; }
}

test_expect_success 'autogen.sh makes configure' '
	mkdir src &&
	(cd "$FLUX_SOURCE_DIR" && ./scripts/manifest | tar -cf - -T -) | (cd src && tar -xf -) &&
	(cd src && ./autogen.sh >../autogen.out 2>&1) &&
	test -x src/configure &&
	version=$(sed -n "s/^VERSION = .\(.*\).$/\1/p" src/src/bindings/python/flux_scheduler_version.py) &&
	src/configure --version >version.out &&
	grep "^flux-scheduler configure $version\$" version.out &&
	find src | sort >src.before
'
test_expect_success GREENLET 'configure lists the parts found, missing and switched off' '
	mkdir build &&
	(cd build && configure --prefix=/opt/sched --with-flux=no) &&
	grep "for the embedded instance" build/configure.out &&
	grep "found:" build/configure.out &&
	grep "Python 3.* $PYTHON" build/configure.out &&
	grep "switched off:" build/configure.out &&
	grep "a real Flux: --with-flux=no" build/configure.out
'
test_expect_success GREENLET 'it goes on without libhwloc, and names the lost features' '
	mkdir nohwloc &&
	(cd nohwloc && configure --with-flux=no HWLOC_LIBS=-lno_such_library) &&
	grep "package libhwloc-dev" nohwloc/configure.out &&
	grep "topology from hwloc XML" nohwloc/configure.out &&
	mkdir wanthwloc &&
	(cd wanthwloc && test_must_fail configure --with-flux=no --enable-hwloc HWLOC_LIBS=-lno_such_library >out) &&
	grep "enable-hwloc" wanthwloc/configure.out
'
test_expect_success GREENLET 'it goes on without a compiler, and names the lost features' '
	mkdir nocc &&
	(cd nocc && configure --with-flux=no CC=/no/such/cc) &&
	grep "no C compiler (/no/such/cc)" nocc/configure.out &&
	grep "the compiled part of plans (" nocc/configure.out &&
	make -C nocc clean >nocc.out 2>&1 &&
	mkdir wantcc &&
	(cd wantcc && test_must_fail configure --with-flux=no --enable-compiled-plan CC=/no/such/cc >out) &&
	grep "enable-compiled-plan: no C compiler" wantcc/configure.out
'
test_expect_success GREENLET 'make, beside the source: nothing is written into that' '
	{ make -C build >make.out 2>&1 || { cat make.out; false; }; } &&
	find src -name __pycache__ -prune -o -print | sort >src.after &&
	grep -v __pycache__ src.before | test_cmp - src.after
'
test_expect_success GREENLET 'the release holds the sources, and nothing that was made' '
	{ XZ_OPT=-0 make -C build dist >dist.out 2>&1 || { cat dist.out; false; }; } &&
	tar -tf build/flux-scheduler-*.tar.xz >files &&
	for file in configure README.md LICENSE LICENSE.GPL src/modules/sched-fifo/sched-fifo.py src/cmd/flux t/sharness.sh \
		t/t0001-instance.t t/python/conftest.py scripts/quickstart.jobs doc/index.rst .ci/run; do
		grep -q "/$file\$" files || { echo "missing: $file"; return 1; }
	done &&
	test_must_fail grep -E "__pycache__|\.pyc\$|\.so\$|config\.(log|status)\$|/Makefile\$|trash-directory|/_build/|/\.cache/" files
'
test_expect_success GREENLET 'an unpacked release has all files of the source, and lists them itself' '
	mkdir "un packed" && tar -xf build/flux-scheduler-*.tar.xz -C "un packed" --strip-components=1 &&
	(cd src && ./scripts/manifest) | sed "s,^\./,," | sort >expected &&
	"un packed/scripts/manifest" | sed "s,^\./,," | sort >actual &&
	test_cmp expected actual
'
test_expect_success GREENLET 'it is built and installed, whatever spaces are in the paths of the tree, the Python and the prefix' '
	printf "#!/bin/sh\nexec %s \"\$@\"\n" "$PYTHON" >"py thon" && chmod +x "py thon" &&
	(cd "un packed" && ./configure --with-flux=no --disable-docs PYTHON="$OLDPWD/py thon" --prefix="$OLDPWD/pre fix" &&
		make install >spaces.out 2>&1 || { cat spaces.out; exit 1; }) &&
	"pre fix/bin/flux" start "$PWD/pre fix/bin/flux" run echo spaces >spaces &&
	grep spaces spaces
'

test_expect_success GREENLET 'make install with DESTDIR' '
	{ make -C build install DESTDIR=../dest >install.out 2>&1 || { cat install.out; false; }; } &&
	grep "/opt/sched/bin/flux start" install.out &&
	lib=dest/opt/sched/lib/flux-scheduler &&
	test -x dest/opt/sched/bin/flux &&
	test -f $lib/bindings/python/flux/scheduler/__init__.py &&
	test -f $lib/bindings/python/flux/resource/__init__.py &&
	test -f $lib/modules/sched-fifo/sched-fifo.py &&
	test -x $lib/cmd/flux-sched.py &&
	test -f $lib/embedded/flux_embedded/__init__.py &&
	{ ! grep "cffi: the compiled part of plans" build/configure.out || ls $lib/bindings/python/_flux_plan.*.so; }
'
test_expect_success GREENLET 'nothing was installed outside DESTDIR and prefix, no test, no build script' '
	find dest -type f ! -path "dest/opt/sched/*" >outside &&
	test_must_be_empty outside &&
	find dest -name "test_*" -o -path "*_flux_*" -name build.py -o -name extension.py -o -name "*.[ch]" >unwanted &&
	test_must_be_empty unwanted
'
if grep -qs "Sphinx: man pages" build/configure.out; then test_set_prereq SPHINX; fi
test_expect_success SPHINX 'the man pages are there' '
	for page in flux-scheduler flux-sched-fifo flux-sched-simple flux-sched-backfill flux-embedded; do
		test -s dest/opt/sched/share/man/man7/$page.7 || return 1
	done
'
test_expect_success GREENLET,EMBEDDED 'the installed command runs an instance, moved elsewhere too' '
	mv dest moved &&
	PATH="$PWD/moved/opt/sched/bin:$PATH" &&
	test "$(command -v flux)" = "$PWD/moved/opt/sched/bin/flux" &&
	flux start -s2 flux run -n2 echo installed >out &&
	test $(grep -c installed out) = 2 &&
	flux start flux python -c "import flux.scheduler, flux_embedded; print(flux.scheduler.__file__, flux_embedded.__file__)" >files &&
	test $(grep -o "$PWD/moved/opt/sched/lib" files | wc -l) = 2 &&
	flux start flux sched stats >stats &&
	grep "\"name\": \"sched-simple\"" stats &&
	flux start flux module list -l >list &&
	grep "moved/opt/sched/lib/flux-scheduler/modules/sched-simple/sched-simple.py" list &&
	mv moved dest
'
test_expect_success GREENLET,EMBEDDED 'the installed harness runs a test of a site, from any directory' '
	{ make -C build install prefix="$PWD/prefix" >harness.out 2>&1 || { cat harness.out; false; }; } &&
	mkdir elsewhere && cp "$FLUX_SOURCE_DIR"/doc/examples/first.* elsewhere/ &&
	(unset TEST_UNDER_FLUX_ACTIVE SHARNESS_TEST_DIRECTORY SHARNESS_TRASH_DIRECTORY &&
		cd elsewhere && FLUX_TEST_LIB="$OLDPWD/prefix/lib/flux-scheduler/test" sh ./first.t >out 2>&1 || { cat out; false; }) &&
	grep "^# passed all 4" elsewhere/out
'
test_expect_success GREENLET 'parts switched off since the last build are left out of the tree and of the installation' '
	find build dest -name "_flux_*.so" >built &&
	{ ! grep "cffi: the compiled part of plans" build/configure.out || test -s built; } &&
	{ make -C build install COMPILED= DESTDIR="$PWD/dest" >off.out 2>&1 || { cat off.out; false; }; } &&
	find build dest -name "_flux_*.so" >left &&
	test_must_be_empty left
'
test_expect_success GREENLET 'make uninstall removes every file, after make clean as well' '
	find dest -name __pycache__ -prune -o -type f -print | grep -q . &&
	make -C build clean >clean.out 2>&1 &&
	{ make -C build uninstall DESTDIR="$PWD/dest" >uninstall.out 2>&1 || { cat uninstall.out; false; }; } &&
	find dest -type f >left &&
	test_must_be_empty left
'

#
# A real Flux.  These stand-ins answer only the questions of configure to a flux command.
#
fake_flux() {
	mkdir -p $1/bin &&
	cat >$1/bin/flux <<-EOF &&
	#!/bin/sh
	case \$1 in
	version) test -n "$2" || exit 127; printf 'commands:    \t\t$2\nlibflux-core:\t\t$2\n' ;;
	python) shift; exec "$PYTHON" "\$@" ;;
	*) exit 1 ;;
	esac
	EOF
	chmod +x $1/bin/flux
}

test_expect_success 'set up: flux commands of several versions' '
	fake_flux "$PWD/f88" 0.88.0 &&
	fake_flux "$PWD/f85" 0.85.0-12-gabc &&
	fake_flux "$PWD/f84" 0.84.0 &&
	fake_flux "$PWD/broken" ""
'
test_expect_success '--with-flux=PREFIX: no flux command but flux-simulate; the variables are printed' '
	mkdir real &&
	(cd real && configure --with-flux="$OLDPWD/f88" --prefix=/opt/over --disable-docs --disable-hwloc --disable-compiled-plan) &&
	grep "for Flux 0.88.0" real/configure.out &&
	grep "sharness" real/configure.out &&
	{ { make -C real && make -C real install DESTDIR="$PWD/realdest"; } >real.out 2>&1 || { cat real.out; false; }; } &&
	test ! -e realdest/opt/over/bin/flux &&
	test -x realdest/opt/over/lib/flux-scheduler/cmd/flux-simulate &&
	grep "FLUX_EXEC_PATH_PREPEND=/opt/over/lib/flux-scheduler/cmd" real.out &&
	for file in sharness.sh sharness.d/trash.sh scripts/dmesg-grep.py rc/rc1-job.py rc/rc3.py; do
		test -f "realdest/opt/over/lib/flux-scheduler/test/$file" || { echo "no $file"; return 1; }
	done &&
	test -f realdest/opt/over/lib/flux-scheduler/bindings/python/flux/scheduler/__init__.py &&
	grep "FLUX_PYTHONPATH_PREPEND=/opt/over/lib/flux-scheduler/bindings/python\$" real.out &&
	grep "FLUX_MODULE_PATH_PREPEND=/opt/over/lib/flux-scheduler/modules/sched-fifo:.*/sched-backfill\$" real.out &&
	test -x realdest/opt/over/lib/flux-scheduler/cmd/flux-sched.py &&
	grep "FLUX_EXEC_PATH_PREPEND=/opt/over/lib/flux-scheduler/cmd\$" real.out
'
simulate_python=${FLUX_SCHEDULER_PYTHON:-$TEST_PYTHON}
test -z "$simulate_python" || test_set_prereq SIMULATE_PYTHON
test_expect_success GREENLET,SIMULATE_PYTHON 'its flux-simulate runs, by a Python with greenlet' '
	# The bindings that a Flux has, which the stand-in has not.
	FLUX_SCHEDULER_BINDINGS=$FLUX_PYTHON_COPY FLUX_SCHEDULER_PYTHON=$simulate_python realdest/opt/over/lib/flux-scheduler/cmd/flux-simulate sample --jobs=20 -q >out &&
	grep "^sched-backfill" out
'
test_expect_success 'too old, broken, not there: refused with the reason' '
	mkdir no1 no2 no3 &&
	(cd no1 && test_must_fail configure --with-flux="$OLDPWD/f84" >/dev/null) &&
	grep "0.84.0, and 0.85 is the oldest" no1/configure.out &&
	(cd no2 && test_must_fail configure --with-flux="$OLDPWD/broken" >/dev/null) &&
	grep "version. does not run" no2/configure.out &&
	(cd no3 && test_must_fail configure --with-flux="$OLDPWD/nowhere" >/dev/null) &&
	grep "nowhere/bin/flux is not there" no3/configure.out
'
test_expect_success GREENLET 'auto passes over a flux command that does not run, and over the embedded one' '
	mkdir auto1 auto2 &&
	(cd auto1 && PATH="$OLDPWD/broken/bin:$PATH" && configure) &&
	grep "for the embedded instance" auto1/configure.out &&
	grep "a real Flux (.*does not run)" auto1/configure.out &&
	(cd auto2 && PATH="$FLUX_SOURCE_DIR/src/cmd:$PATH" && configure) &&
	grep "for the embedded instance" auto2/configure.out
'
test_expect_success 'auto takes the flux command on the PATH, and a version with more to its name than a number' '
	mkdir auto3 &&
	(cd auto3 && PATH="$OLDPWD/f85/bin:$PATH" && configure) &&
	grep "for Flux 0.85.0" auto3/configure.out
'

#
# The real Flux that this run is for
#
test_expect_success REAL_FLUX 'it is installed over the real Flux' '
	mkdir site &&
	(cd site && configure --with-flux="$(dirname "$(dirname "$REAL_FLUX")")" --prefix="$PWD/opt") &&
	{ { make -C site && make -C site install; } >site.out 2>&1 || { cat site.out; false; }; }
'
test_expect_success REAL_FLUX 'an instance runs with it, given the variables that were printed' '
	sed -n "s/^ *\(FLUX_[A-Z_]*=.*\)/export \1/p" site.out >variables &&
	grep FLUX_PYTHONPATH_PREPEND variables &&
	cat >where.sh <<-\EOF &&
	flux module remove sched-simple
	flux module load sched-fifo
	flux run -n1 echo installed
	flux sched when -n1
	flux python -c "import flux.scheduler; print(flux.scheduler.__file__)"
	flux module list -l | awk "\$1 == \"sched-fifo\"" | grep -c site/opt
	EOF
	(. ./variables && flux start sh where.sh) >where.out &&
	grep "^installed" where.out &&
	grep "^now" where.out &&
	grep "$PWD/site/opt/lib/flux-scheduler/bindings" where.out
'
test_expect_success REAL_FLUX 'and so does a test of the site, with the installed harness' '
	mkdir elsewhere && cp "$FLUX_SOURCE_DIR"/doc/examples/first.* elsewhere/ &&
	(unset TEST_UNDER_FLUX_ACTIVE SHARNESS_TEST_DIRECTORY SHARNESS_TRASH_DIRECTORY FLUX_MODULE_PATH_PREPEND &&
		cd elsewhere && FLUX_TEST_LIB="$OLDPWD/site/opt/lib/flux-scheduler/test" sh ./first.t >out 2>&1 || { cat out; false; }) &&
	grep "^# passed all 4" elsewhere/out
'

test_done
