# SPDX-License-Identifier: LGPL-3.0-or-later
from typing import Any

class Message:
    def __init__(self, type: int = ..., handle: Any = ...) -> None: ...
    topic: str
    payload: Any
    payload_str: str
