"""Constraints as text (RFC 35): what scripts parse them with."""

from flux_embedded.formats import constraint_text as _text

__all__ = ["ConstraintParser", "ConstraintSyntaxError"]


class ConstraintSyntaxError(Exception):
    """The text is not a constraint; says what is wrong and where."""


class ConstraintParser:
    """Parser of constraint text; a subclass sets the attributes to give terms a meaning.

    Attributes:
        operator_map (dict): operator in the text to operator in the result; None: of a bare term
        split_values (dict): operator of the result to the character between several values
        combined_terms (set): operators of the result whose values are put together in one list
    """

    operator_map = {}
    split_values = {}
    combined_terms = set()

    def parse(self, text):
        """Return the constraint object (RFC 31) that `text` (str) stands for.

        Raises:
            ConstraintSyntaxError: it is not a constraint
        """
        if not text.strip():
            raise ConstraintSyntaxError(f"Unexpected end of input in {text!r}")
        syntax = _text.Syntax(self.operator_map, self.split_values, tuple(self.combined_terms))
        try:
            return _text.parse(text, syntax)
        except ValueError as exc:
            raise ConstraintSyntaxError(str(exc)) from None
