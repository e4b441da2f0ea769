# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker: one process that loads modules, routes messages and serves clients of a socket.

Read `instance` for the life of an instance, `modules` for loading and unloading, and
`context` for the state that the builtin services share.
"""
