"""Whether a parallel debugger has attached (MPIR): a number that the bindings keep here."""

from _flux.function import function

_attached = 0


@function("int get_mpir_being_debugged (void)")
def get_mpir_being_debugged():
    return _attached


@function("void set_mpir_being_debugged (int value)")
def set_mpir_being_debugged(value):
    global _attached
    _attached = value
