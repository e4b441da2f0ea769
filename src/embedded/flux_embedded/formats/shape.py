"""Resource shapes as command line text (RFC 46)."""

import json
import re

from flux_embedded.formats import idset
from flux_embedded.formats.quote import quote

MAX_DEPTH = 64
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_.@+-]*")
_COUNT = re.compile(r"\[[0-9,:+*^-]*\]|[0-9][0-9,:+*^-]*")
_RANGE = re.compile(
    r"([1-9][0-9]{0,17})(?:-([1-9][0-9]{0,17})|\+)"
    r"(?::([1-9][0-9]{0,17})(?::([+*^]))?)?"
)
_KEY = re.compile(r"[^\s:,{}\[\]/;+\"-][^\s:,{}\[\]/;\"]*")
_BARE = re.compile(r"[^\s,{}\[\]\":]+")


def parse(text, default_label="default", expand=True):
    """Return the jobspec ``resources`` array that a shape stands for.

    Args:
        text (str): for example ``node=2/slot=4/[core=2;gpu]``.
        default_label (str): label of the only slot of a shape, where it has
            none of its own.
        expand (bool): write range strings as objects (RFC 46); otherwise
            counts that are not integers stay as they were written.

    Raises:
        ValueError: what is wrong, and where.
    """
    parser = _Parser(text, expand)
    vertices = parser.list(0)
    parser.end()
    if parser.unlabeled:
        if len(parser.slots) > 1:
            raise ValueError(
                f"shape {quote(text)}: slots must be labeled when there is more than one"
            )
        parser.unlabeled[0]["label"] = default_label
    labels = [slot["label"] for slot in parser.slots]
    if len(set(labels)) != len(labels):
        raise ValueError(f"shape {quote(text)}: slot labels must differ")
    return vertices


def parse_count(text, expand=True):
    """Return the jobspec count of an integer, idset or range string.

    Raises:
        ValueError: not a count of RFC 45, or 0 is among its values.
    """
    body = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    if body.isascii() and body.isdigit() and body[0] != "0" and len(body) < 19:
        return int(body)
    match = _RANGE.fullmatch(body)
    if match:
        low, high, operand, operator = match.groups()
        low = int(low)
        high = int(high) if high else None
        operand = int(operand) if operand else None
        if high is not None and high < low:
            raise ValueError(f"count {quote(text)}: {high} is less than {low}")
        if operator in ("*", "^") and operand < 2:
            raise ValueError(f"count {quote(text)}: operand of {operator} must be 2 or more")
        if operator == "^" and low < 2:
            raise ValueError(f"count {quote(text)}: minimum must be 2 or more for ^")
        if not expand:
            return text
        result = {"min": low}
        if high is not None:
            result["max"] = high
        if high is not None or operand is not None:
            result["operator"] = operator or "+"
            result["operand"] = operand or 1
        return result
    try:
        bounds = idset.decode(body)
    except ValueError:
        bounds = []
    if not bounds or bounds[0] == 0:
        raise ValueError(f"count {quote(text)}: expected an integer, idset or range above 0")
    return text if not expand else body


class _Parser:
    def __init__(self, text, expand):
        self.text = text
        self.expand = expand
        self.pos = 0
        self.slots = []
        self.unlabeled = []

    def fail(self, what):
        found = repr(self.text[self.pos]) if self.pos < len(self.text) else "the end"
        raise ValueError(
            f"shape {quote(self.text)}: expected {what} at position {self.pos}, found {found}"
        )

    def accept(self, char):
        if self.text[self.pos : self.pos + 1] == char:
            self.pos += 1
            return True
        return False

    def take(self, pattern, what):
        match = pattern.match(self.text, self.pos)
        if not match:
            self.fail(what)
        self.pos = match.end()
        return match.group()

    def end(self):
        if self.pos < len(self.text):
            self.fail("the end")

    def list(self, depth):
        if depth > MAX_DEPTH:
            raise ValueError(f"shape {quote(self.text)}: nested too deeply")
        if not self.accept("["):
            return [self.vertex(depth)]
        vertices = [self.vertex(depth)]
        while self.accept(";"):
            vertices.append(self.vertex(depth))
        if not self.accept("]"):
            self.fail("']' or ';'")
        return vertices

    def vertex(self, depth):
        vertex = {"type": self.take(_TYPE, "a resource type"), "count": 1}
        slot = vertex["type"] == "slot"
        if self.accept("="):
            vertex["count"] = parse_count(self.take(_COUNT, "a count"), self.expand)
        items = self.items(slot, depth) if self.accept("{") else {}
        if slot:
            self.slots.append(vertex)
            if "label" not in items:
                if items:
                    self.fail("the label first among the items of a slot")
                self.unlabeled.append(vertex)
                vertex["label"] = None
        vertex.update(items)
        if self.accept("/"):
            vertex["with"] = self.list(depth + 1)
        elif slot:
            self.fail("'/' and the contents of the slot")
        return vertex

    def items(self, slot, depth):
        """Items of a vertex up to and with the closing brace."""
        items = {}
        if slot:
            label = self.value(depth, bare_only=True)
            items["label"] = label
            if self.accept("}"):
                return items
            if not self.accept(","):
                self.fail("'}' or ','")
        while True:
            key, value = self.item(depth)
            items["exclusive" if key == "x" else key] = value
            if self.accept("}"):
                return items
            if not self.accept(","):
                self.fail("'}' or ','")

    def item(self, depth):
        if self.accept("+"):
            return self.take(_KEY, "a key"), True
        if self.accept("-"):
            return self.take(_KEY, "a key"), False
        key = self.key()
        if self.accept(":"):
            return key, self.value(depth)
        return key, True

    def key(self):
        if self.text[self.pos : self.pos + 1] == '"':
            return self.string()
        return self.take(_KEY, "a key")

    def string(self):
        try:
            value, self.pos = json.JSONDecoder().raw_decode(self.text, self.pos)
        except ValueError:
            self.fail("a JSON string")
        return value

    def value(self, depth, bare_only=False):
        if depth > MAX_DEPTH:
            raise ValueError(f"shape {quote(self.text)}: nested too deeply")
        char = self.text[self.pos : self.pos + 1]
        if char == '"':
            return self.string()
        if bare_only:
            return self.take(_BARE, "a label")
        if char == "{":
            self.pos += 1
            result = {}
            while not self.accept("}"):
                if result and not self.accept(","):
                    self.fail("'}' or ','")
                key, result_value = self.item(depth + 1)
                result[key] = result_value
            return result
        if char == "[":
            self.pos += 1
            values = []
            while not self.accept("]"):
                if values and not self.accept(","):
                    self.fail("']' or ','")
                values.append(self.value(depth + 1))
            return values
        word = self.take(_BARE, "a value")
        try:
            return json.loads(word, parse_constant=_no_constant)
        except ValueError:
            return word


def _no_constant(name):
    raise ValueError(name)
