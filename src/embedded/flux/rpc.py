"""The future that ``h.rpc()`` returns."""

from flux_embedded.kernel.future import RPC

__all__ = ["RPC"]
