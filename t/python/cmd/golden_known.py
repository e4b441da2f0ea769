"""What of the recorded commands need not be alike in an embedded instance, and why."""

FAKE_RANKS = "real processes on fake ranks: a real host has no broker there"
TOPOLOGY = "the machine that recorded has fewer cores than the fake inventory"

#: (pattern in the command or what it printed, why): such lines need not be alike.
RULES = [
    (r"node failure on \(null\)|housekeeping: \(null\)", FAKE_RANKS),
]

#: scenario -> {command: why}; " #N" after a command is its Nth occurrence in the scenario.
SET_ASIDE = {}
