# SPDX-License-Identifier: LGPL-3.0-or-later
"""A site's own rules, from the configuration (``[rules]``) or the argument ``rule=``.

Each is given as ``FILE:CLASS``, a class derived from `AdmissionRule` or, if enabled by its own
table, from `TableRule`. The file must be writable only by the instance owner and root. It is run
when the rule comes into force; checking a configuration does not run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.scheduler.admission import AdmissionRule
from flux.scheduler.site_code import name_in_file, read_code
from flux.scheduler.site_policy.table_rule import TableRule

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter

#: The table, and the noun for its entries.
TABLE = "rules"
WHAT = "CLASS"


def read_rule(key: str, value: Any, check_owner: bool = True) -> str:
    """Parse an entry of ``[rules]``: ``NAME = "FILE:CLASS"``. The file is read, but not run.

    Raises:
        ValueError: the entry is invalid; the text says why
    """
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"{value!r}: expected '/PATH/FILE.py:CLASS'")
    read_code(key, value, check_owner, WHAT)
    return value


def make_rule(
    option: str,
    name: str,
    text: str,
    host: Any,
    errors: ErrorReporter,
    check_owner: bool = True,
) -> AdmissionRule:
    """Make the rule of ``FILE:CLASS``.

    Args:
        option (str): name of the argument or key, for errors
        name (str): the rule's name, unless its class has one
        text (str): ``FILE:CLASS``
        host (RuleHost): the scheduler
        errors (ErrorReporter): logs errors
        check_owner (bool): see `read_code`

    Raises:
        ValueError: there is no such class, or it cannot be instantiated
    """
    kind = name_in_file(option, text, check_owner, WHAT)
    if not isinstance(kind, type) or not issubclass(kind, AdmissionRule):
        raise ValueError(f"{option}={text!r}: it is no class derived from AdmissionRule")
    try:
        rule = kind(host, errors) if issubclass(kind, TableRule) else kind(host)
    except Exception as exc:
        raise ValueError(f"{option}={text!r}: {type(exc).__name__}: {exc}") from exc
    if isinstance(rule, TableRule) and not rule.table:
        raise ValueError(f"{option}={text!r}: it does not say which table is its own")
    if kind.name == AdmissionRule.name:
        rule.name = name
    rule.source = text
    return rule
