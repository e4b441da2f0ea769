"""Constraints as command line text (RFC 35)."""

import re

from flux_embedded.formats.quote import quote

MAX_DEPTH = 64
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<and>&&?) | (?P<or>\|\|?) | (?P<open>\() | (?P<close>\))
      | (?P<neg>-)
      | (?P<term>(?:[^\s()&|"':-][^\s()&|"':]*:)?
            (?:"[^"]*"|'[^']*'|[^\s()&|"'-][^\s()&|"']*|[^\s()&|"']+))""",
    re.VERBOSE,
)
_OPERATOR = re.compile(r"[A-Za-z0-9_.@+-]+")


class Syntax:
    """What a text means, apart from the grammar.

    Args:
        operators (dict): operator in the text to operator in the result; the
            key None names the operator of a bare operand.  Others stay as
            they are.
        split (dict): result operator to the character that separates several
            values in one operand.
        merge (tuple): result operators whose values may be put together in
            one list where they are conjoined.
    """

    def __init__(self, operators, split=None, merge=()):
        self.operators = operators
        self.split = split or {}
        self.merge = frozenset(merge)


#: ``--requires`` of the submission commands
REQUIREMENTS = Syntax(
    {
        None: "properties",
        "host": "hostlist",
        "hosts": "hostlist",
        "rank": "ranks",
    },
    split={"properties": ","},
    merge=("properties",),
)


def parse(text, syntax=REQUIREMENTS):
    """Return the constraint object (RFC 31) that a text stands for.

    Args:
        text (str): for example ``ssd (gpu|-host:n[1-4])``; only white space
            is the empty constraint.
        syntax (Syntax): operators of the text.

    Raises:
        ValueError: ``Invalid token ... at position N`` or another reason.
    """
    tokens = _tokenize(text)
    if not tokens:
        return {}
    parser = _Parser(text, tokens, syntax)
    result = parser.disjunction(0)
    parser.expect_end()
    return result


def _tokenize(text):
    tokens = []
    pos = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if not match:
            raise ValueError(f"Illegal character {text[pos]!r} at position {pos}")
        kind = match.lastgroup
        value = match.group()
        if kind == "term":
            kind = {"and": "and", "or": "or", "not": "not"}.get(value.lower(), "term")
        if kind != "space":
            tokens.append((kind, value, pos))
        pos = match.end()
    return tokens


class _Parser:
    def __init__(self, text, tokens, syntax):
        self.text = text
        self.tokens = tokens
        self.syntax = syntax
        self.at = 0

    def peek(self):
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def fail(self):
        if self.at >= len(self.tokens):
            opened = self.unclosed()
            if opened:
                raise ValueError(f"Unclosed parenthesis in position {opened[-1]}")
            raise ValueError(f"Unexpected end of input in {quote(self.text)}")
        _, value, pos = self.tokens[self.at]
        raise ValueError(f"Invalid token {quote(value)} at position {pos}")

    def unclosed(self):
        """The positions of the parentheses that are open at the end."""
        opened = []
        for kind, _, pos in self.tokens:
            if kind == "open":
                opened.append(pos)
            elif kind == "close" and opened:
                opened.pop()
        return opened

    def expect_end(self):
        if self.at < len(self.tokens):
            self.fail()

    def disjunction(self, depth):
        terms = [self.conjunction(depth)]
        while self.peek() == "or":
            self.at += 1
            terms.append(self.conjunction(depth))
        return terms[0] if len(terms) == 1 else {"or": terms}

    def conjunction(self, depth):
        terms = [self.factor(depth)]
        while True:
            kind = self.peek()
            if kind == "and":
                self.at += 1
            elif kind in (None, "or", "close"):
                break
            self.add(terms, self.factor(depth))
        return terms[0] if len(terms) == 1 else {"and": terms}

    def add(self, terms, term):
        """Conjoin a term, in the list of an earlier one if that means the same."""
        ((op, values),) = term.items()
        if op in self.syntax.merge and op in terms[-1]:
            terms[-1][op].extend(values)
        else:
            terms.append(term)

    def factor(self, depth):
        if depth > MAX_DEPTH:
            raise ValueError("constraint is nested too deeply")
        kind = self.peek()
        if kind == "not":
            self.at += 1
            return {"not": [self.factor(depth + 1)]}
        if kind == "open":
            self.at += 1
            inner = self.disjunction(depth + 1)
            if self.peek() != "close":
                self.fail()
            self.at += 1
            return inner
        if kind == "neg":
            self.at += 1
            if self.peek() != "term":
                self.fail()
            return {"not": [self.term()]}
        if kind == "term":
            return self.term()
        self.fail()

    def term(self):
        text = self.tokens[self.at][1]
        self.at += 1
        operator = None
        operand = text
        if text[0] not in "\"'" and ":" in text:
            operator, _, operand = text.partition(":")
            if not _OPERATOR.fullmatch(operator):
                bad = _OPERATOR.sub("", operator)[:1]
                raise ValueError(f"invalid character {bad!r} in operator {quote(operator + ':')}")
        if operand[:1] in ("'", '"'):
            operand = operand[1:-1]
        elif not operand:
            raise ValueError(f"missing operand after {quote(text)}")
        op = self.syntax.operators.get(operator, operator)
        if op is None:
            raise ValueError(f'Missing required operator in "{text}"')
        separator = self.syntax.split.get(op)
        return {op: operand.split(separator) if separator else [operand]}
