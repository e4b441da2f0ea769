# SPDX-License-Identifier: LGPL-3.0-or-later
"""What TreePool adds to a pool: nodes as trees of places."""
