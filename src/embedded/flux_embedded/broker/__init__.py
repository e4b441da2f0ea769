# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker: one process that loads modules, routes messages and serves clients of a socket.

Read `instance` for the life of an instance, `modules` for how a module is loaded and unloaded, and
`context` for what every builtin service is given.
"""
