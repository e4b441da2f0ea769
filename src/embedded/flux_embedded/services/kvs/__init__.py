# SPDX-License-Identifier: LGPL-3.0-or-later
"""The key-value store of the instance, service ``kvs``.

It is a tree of directories; a key is its path with ``.`` between the names (``job.0000.0005.dc00.0000.R``).  Values are
text.  Everything is kept in memory: it ends with the instance.  Commits are applied one after the other, each whole or not
at all, in the order in which they arrived (RFC 16: commit order is visible order).

`flux_embedded.broker.context.BrokerContext.kvs` is the tree, for services that read and watch it. All methods are for the instance owner only.  Keys are non-empty strings without empty components (EINVAL otherwise); ``.``
alone is the root directory.

====================  ======================================================
method                payload -> response
====================  ======================================================
commit                ``{ops: [OP, ...]}`` -> ``{rootseq}``, how many commits
                      there were.  ops (may be empty) are applied in order and
                      become visible together.  OP is one of

                      - ``["put", KEY, TEXT]``
                      - ``["append", KEY, TEXT]``: to the end of the value,
                        which is created if it is missing (EISDIR on a
                        directory)
                      - ``["unlink", KEY]``: value or whole directory; a
                        missing key is not an error
                      - ``["mkdir", KEY]``: an existing directory is kept

                      Missing directories on the way are made; a value in
                      the way is replaced by a directory.
lookup                ``{key}`` -> ``{value: TEXT}``.  Missing: ENOENT, a
                      directory: EISDIR.
readdir               ``{key}`` -> ``{names: {NAME: IS_DIRECTORY}}``, in
                      order of name.  Missing: ENOENT, a value: ENOTDIR.
====================  ======================================================
"""
