# SPDX-License-Identifier: LGPL-3.0-or-later
from collections.abc import Mapping
from typing import Any, Union

class ResourceSet:
    def __init__(
        self, arg: Union[str, Mapping[str, Any], ResourceSet, None] = ..., version: int = ...
    ) -> None: ...
    ranks: Any
    nodelist: Any
    nnodes: int
    ncores: int
    ngpus: int
    rlist: str
    state: str
    def encode(self) -> str: ...
    def copy(self) -> ResourceSet: ...
    def get_properties(self) -> str: ...
