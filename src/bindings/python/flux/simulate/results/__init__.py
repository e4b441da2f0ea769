# SPDX-License-Identifier: LGPL-3.0-or-later
"""What comes out of a simulation: when jobs started, files about it, figures, and what follows from them."""
