# A trash directory without a space in its name: job commands and rc paths are split at white space.
SHARNESS_TRASH_DIRECTORY=${root:-$SHARNESS_TEST_DIRECTORY}/trash-directory.$TEST_NAME
case $SHARNESS_TRASH_DIRECTORY in /*) ;; *) SHARNESS_TRASH_DIRECTORY=$SHARNESS_TEST_DIRECTORY/$SHARNESS_TRASH_DIRECTORY ;; esac
test "$debug" = t || remove_trash=$SHARNESS_TRASH_DIRECTORY
rm -rf "$SHARNESS_TRASH_DIRECTORY" || exit 1
