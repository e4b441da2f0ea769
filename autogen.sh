#!/bin/sh
# Make ./configure from configure.ac and Makefile.am.  Needs autoconf and automake.
cd "$(dirname "$0")" || exit 1
for tool in autoreconf automake; do
    command -v $tool >/dev/null || { echo "autogen.sh: $tool not found: install the packages autoconf and automake" >&2; exit 1; }
done
# By force: what the last run has cached does not know when the file with the version has changed.
mkdir -p build-aux && exec autoreconf --install --force "$@"
