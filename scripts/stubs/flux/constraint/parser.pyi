# SPDX-License-Identifier: LGPL-3.0-or-later
from typing import Any, ClassVar, Optional

class ConstraintSyntaxError(SyntaxError): ...

class ConstraintParser:
    operator_map: ClassVar[dict[Optional[str], str]]
    split_values: ClassVar[dict[str, str]]
    def parse(self, constraint: str, debug: bool = ...) -> dict[str, Any]: ...
