"""TreePool: a pool that knows where in a node a core or GPU lies."""

from .tree_amend import amend

__all__ = ["amend"]
