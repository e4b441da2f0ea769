# SPDX-License-Identifier: LGPL-3.0-or-later
"""Rules of a site's own, by the configuration (``[rules]``) or by the argument ``rule=``.

Each is named as ``FILE:CLASS``, a class derived from `AdmissionRule` or, if it is to be switched on by
a table of its own, from `TableRule`. The file has to be one that nobody but the instance owner and root
could have written. It is run when the rule comes into force: looking at a configuration runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.scheduler.admission import AdmissionRule
from flux.scheduler.site_code import name_in_file, read_code
from flux.scheduler.site_policy.table_rule import TableRule

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter

#: The table, and what an entry of it names.
TABLE = "rules"
WHAT = "CLASS"


def read_rule(key: str, value: Any, check_owner: bool = True) -> str:
    """Read one entry of ``[rules]``: ``NAME = "FILE:CLASS"``. The file is read, but not run.

    Raises:
        ValueError: what is wrong
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
    """Make the rule that ``FILE:CLASS`` names.

    Args:
        option (str): name of the argument or key, for errors
        name (str): what the rule is called, unless its class says
        text (str): ``FILE:CLASS``
        host (RuleHost): the scheduler
        errors (ErrorReporter): where trouble is reported
        check_owner (bool): see `read_code`

    Raises:
        ValueError: there is no such class, or it cannot be made
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
