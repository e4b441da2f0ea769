# For scripts that load Python jobtap plugins on either host; read it after sharness.sh, before test_under_flux.
#
# With it `flux jobtap load NAME.py` works on both. $so is the ending of such a plugin's listed name.
JOBTAP_SOURCE=$FLUX_SOURCE_DIR/src/jobtap
so=py
if test -n "$REAL_FLUX"; then
    so=so
    FLUX_JOBTAP_PYTHON=${FLUX_JOBTAP_PYTHON:-$FLUX_BUILD_DIR/src/jobtap/python.so}
    FLUX_EXEC_PATH_PREPEND=$JOBTAP_SOURCE/cmd${FLUX_EXEC_PATH_PREPEND:+:$FLUX_EXEC_PATH_PREPEND}
    export FLUX_JOBTAP_PYTHON FLUX_EXEC_PATH_PREPEND
    test -f "$FLUX_JOBTAP_PYTHON" || { skip_all="python.so was not built: configure says what is missing"; test_done; }
fi
