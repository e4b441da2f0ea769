"""Whether a parallel debugger has attached (MPIR): a number that the bindings keep here."""

from _flux.function import functions

_attached = [0]

functions(
    {
        "int get_mpir_being_debugged (void)": lambda: _attached[0],
        "void set_mpir_being_debugged (int value)": lambda value: _attached.__setitem__(0, value),
    }
)
