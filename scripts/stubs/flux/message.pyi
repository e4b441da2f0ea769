from typing import Any

class Message:
    topic: str
    payload: Any
    payload_str: str
