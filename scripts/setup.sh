# Shared by scripts/quickstart and scripts/check: build a fresh clone.  To be sourced.
#
# Each step first checks whether there is anything to do.  Nothing is written outside the source tree but Debian packages
# (as root): caches go to .cache, the Python environment to .venv.

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$root" || exit 1
mkdir -p .cache && [ -w .cache ] || { echo "$root is not writable: work in a copy of your own (git clone $root)" >&2; exit 1; }
log=$root/.cache/setup.log
# Two of these scripts would make the same files: the second waits for the first to call setup_done.
exec 9>.cache/setup.lock
if command -v flock >/dev/null && ! flock -n 9; then
    echo "another script is building here: waiting for it"
    flock 9
fi
setup_done() {
    exec 9>&-
}
PATH=$PATH:/usr/sbin:/sbin
PIP_CACHE_DIR=$root/.cache/pip
XDG_CACHE_HOME=$root/.cache
MPLCONFIGDIR=$root/.cache/matplotlib
PIP_DISABLE_PIP_VERSION_CHECK=1
PIP_NO_INPUT=1
# A user's own settings of these would affect .venv, or take effect outside of it. Without bytecode each of many processes
# would compile all modules.
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PYTHONDONTWRITEBYTECODE
export PATH PIP_CACHE_DIR XDG_CACHE_HOME MPLCONFIGDIR PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INPUT

# step TEXT: announce a step; done_step: print its duration.
step() {
    step_start=$(date +%s)
    printf '  %-46s' "$1"
}
done_step() {
    step_seconds=$(($(date +%s) - step_start))
    if [ $step_seconds -gt 1 ]; then echo "${1:-done} ($step_seconds s)"; else echo "${1:-done}"; fi
}
# fail TEXT: the step failed; print the end of its output, and TEXT as advice.
fail() {
    echo FAILED
    grep -v '^WARNING: Location' "$log" | tail -n 15 | sed 's/^/    | /'
    echo
    echo "$1" | sed 's/^/  /'
    echo "  All of the output: $log"
    exit 1
} >&2

build_packages="python3:python3 python3-venv:py=ensurepip autoconf:autoreconf automake:automake make:make gcc:gcc
    libc6-dev:/usr/include/stdio.h python3-dev:Python.h pkg-config:pkg-config libhwloc-dev:pkg=hwloc"
test_packages="sharness:/usr/share/sharness/sharness.sh jq:jq procps:pgrep hostname:hostname xz-utils:xz"

# packages PACKAGE:TEST ...: install the Debian packages whose TEST is not there: a command, a /file, pkg=LIBRARY for
# pkg-config, py=MODULE of python3, or Python.h.
packages() {
    wanted=
    for entry; do
        package=${entry%%:*}
        test=${entry#*:}
        case $test in
        /*) [ -e "$test" ] || wanted="$wanted $package" ;;
        pkg=*) pkg-config --exists "${test#pkg=}" 2>/dev/null || wanted="$wanted $package" ;;
        Python.h) [ -f "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])' 2>/dev/null)/Python.h" ] ||
            wanted="$wanted $package" ;;
        py=*) python3 -c "import ${test#py=}" 2>/dev/null || wanted="$wanted $package" ;;
        *) command -v "$test" >/dev/null 2>&1 || wanted="$wanted $package" ;;
        esac
    done
    step "Debian packages"
    if [ -z "$wanted" ]; then
        done_step "all there"
    elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        done_step "missing"
        echo "    missing:$wanted"
        echo "    You are not root: ask your administrator for"
        echo "      apt-get install$wanted"
        case " $wanted " in
        *" python3 "*) echo "    There is nothing to be done without python3."; exit 1 ;;
        esac
        echo "    Going on without; what needs them is left out or skipped."
    else
        echo "installing:"
        echo "     $wanted"
        printf '  %-46s' ""
        # The lists of a fresh machine are empty or old: fetch them when the first try fails.
        apt_install $wanted || { apt_update && apt_install $wanted; } ||
            fail "apt-get could not install$wanted.
Is the network there?  Try 'apt-get update && apt-get install$wanted' by hand, then run this again."
        done_step
    fi
}
# A machine that was just started may be running apt-get itself: wait for its lock.
apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install "$@" >>"$log" 2>&1 </dev/null
}

# Their lock is not one that DPkg::Lock::Timeout is for.
apt_update() {
    tries=60
    until apt-get -q update >>"$log" 2>&1; do
        tries=$((tries - 1))
        tail -n 3 "$log" | grep -q lists/lock && [ $tries -gt 0 ] || return 1
        sleep 5
    done
}

# python_environment FILE ...: make .venv with the packages of the requirements files.
python_environment() {
    case $1 in *-dev*) step "Tools for tests and documentation" ;; *) step "Python environment (.venv)" ;; esac
    sum=$(cat "$@" | cksum)
    stamp=.venv/.complete-$(basename "$1" .txt)
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$sum" ] && .venv/bin/python -c '' 2>/dev/null; then
        done_step "ready"
        return
    fi
    if ! .venv/bin/python -c '' 2>/dev/null; then
        rm -rf .venv
        python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>>"$log" ||
            fail "python3 is missing, does not run or is older than 3.9: install one (package python3)."
        python3 -m venv .venv >>"$log" 2>&1 ||
            fail "python3 could not make a virtual environment (package python3-venv)."
    fi
    # The pinned versions are for Python 3.11 and later.
    files=
    for file; do
        .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || file=${file%.txt}.in
        files="$files -r $file"
    done
    # Of what is installed a part is ever imported: that is compiled then.
    .venv/bin/python -m pip install -q --no-compile $files >>"$log" 2>&1 ||
        fail "pip could not install what$files name.
Is the package index there?  Try '.venv/bin/python -m pip install$files' by hand, then run this again."
    echo "$sum" >"$stamp"
    done_step
}

# flux_python: fetch flux-core's Python bindings where there is no real Flux.
flux_python() {
    step "flux-core's Python bindings (flux-python)"
    [ -f .cache/flux-python/.complete ] && state=ready || state="done"
    scripts/flux-python >>"$log" 2>&1 || fail "$(tail -n 1 "$log")"
    done_step "$state"
}

# build: configure (again, if the packages it looks for have changed) and make.
build() {
    step "Build (configure, make)"
    if ! { command -v make && { [ -x configure ] || command -v autoreconf; }; } >/dev/null; then
        .venv/bin/python -m compileall -q src/bindings src/embedded >>"$log" 2>&1
        done_step "skipped"
        echo "    no make or no autoconf: the embedded instance runs from the source tree as it is,"
        echo "    without the binding to libhwloc, the compiled part of plans and the man pages."
        return
    fi
    have=$(cat .venv/.complete-* 2>/dev/null; for tool in jq pkg-config gcc; do command -v $tool; done
           ls /usr/share/sharness/sharness.sh /usr/include/hwloc.h 2>/dev/null; echo "$CONFIGURE_ARGS")
    build_is_new=
    if [ ! -x config.status ] || [ "$(cat .cache/configured 2>/dev/null)" != "$have" ]; then
        # Parts that could not be built before may be possible now.
        rm -f .cache/configured
        { [ -x configure ] || ./autogen.sh; } >>"$log" 2>&1 &&
            ./configure --with-flux=no $CONFIGURE_ARGS >.cache/configure.out 2>&1 ||
            { cat .cache/configure.out >>"$log"; fail "The tree could not be configured."; }
        build_is_new=t
    fi
    # It makes configure and the Makefile again if the files that those are made from are newer.
    make -s -j2 >>"$log" 2>&1 || fail "make failed."
    echo "$have" >.cache/configured
    done_step
    # The findings of configure: once.
    [ -z "$build_is_new" ] || sed -n '/^  flux-scheduler/,/to be installed/p' .cache/configure.out | sed '$d' | sed 's/^/  /'
}

# build_for_flux: for the real Flux on the PATH, or for each whose prefix WITH_FLUX names ("A B"), build a copy of the tree as its
# site would: in .build/flux, or if there are several in .build/flux-VERSION; sets $real_builds. (The tree itself is
# configured for the embedded instance.)
build_for_flux() {
    real_builds=
    [ "$WITH_FLUX" != no ] && [ -n "$WITH_FLUX$(command -v flux)" ] && command -v autoreconf >/dev/null || return 0
    set -- ${WITH_FLUX:-auto}
    [ $# -gt 1 ] && several=t || several=
    for prefix; do
        copy=.build/flux
        if [ -n "$several" ]; then
            version=$("$prefix/bin/flux" version 2>/dev/null </dev/null | sed -n 's/^commands:[[:space:]]*//p' | head -n 1)
            copy=$copy-${version:-unknown}
        fi
        step "Build for a real Flux ($copy)"
        case " $real_builds " in
        *" $copy "*) fail "Two of the prefixes in WITH_FLUX are Flux $version: leave one out." ;;
        esac
        build_one_for_flux "$prefix" "$copy"
    done
}
# build_one_for_flux PREFIX DIRECTORY: one of them, in a new directory; PREFIX may be auto.
build_one_for_flux() {
    rm -rf "$2"
    mkdir -p "$2"
    {
        scripts/manifest | tar -cf - -T - | tar -xf - -C "$2" && cd "$2" && ./autogen.sh &&
            ./configure --with-flux="$1" --disable-docs $CONFIGURE_ARGS && make -s && cd "$root"
    } >>"$log" 2>&1 || fail "The tree could not be built for the Flux in $1."
    if grep -q "^REAL_FLUX='..*'" "$2/t/config.sh"; then
        real_builds="$real_builds $2"
        done_step
    else
        # A flux command that is no real Flux: the embedded one, or too old.
        rm -rf "$2"
        done_step "the flux on the PATH is none"
    fi
}
