# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resource service (RFC 28, RFC 44), service ``resource``.

``targets`` is an idset of ranks or a hostlist (``ranks`` is another name for it). Methods beyond the RFCs are this project's own.

=====================  ===========================================================================
method                 payload -> response
=====================  ===========================================================================
acquire (S)            -> ``{resources: R, up: IDSET}``, then changes: ``up``, ``down``,
                       ``shrink``, ``property-add``, ``property-remove``, ``expiration``. One holder
                       at a time (EBUSY); its disconnect ends the stream
drain                  ``{targets, reason?}`` -> nothing; EEXIST if one is drained already, with a reason
undrain                ``{targets}`` -> nothing; EEXIST if one is not drained
offline, online        ``{targets}`` -> nothing: as if their brokers had gone, came back. A
                       rank that was offline is not given back to a scheduler that has been told to
                       forget it (``shrink``) before it acquires anew
shrink                 ``{targets}`` -> nothing: the ranks leave the holder's inventory for good, and
                       are offline: a later acquire gets them in ``resources`` and not in ``up``
property-add, -remove  ``{name, targets}`` -> nothing
expiration-update      ``{expiration}`` -> nothing: end of all resources, seconds since the epoch or 0
reload                 ``{R, force?}`` -> nothing: another inventory; EBUSY while a scheduler
                       is loaded. Without force no rank may be beyond the instance's size
status                 -> ``{R, drain: {IDSET: {timestamp, reason}}, online, offline, exclude, torpid}``
sched-status           -> ``{all: R, down: R, allocated: R}``; guests too
=====================  ===========================================================================
"""
