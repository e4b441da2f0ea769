"""Futures: answers that have not come yet."""

from flux_embedded.kernel.future import Future, FutureExt, WaitAllFuture

__all__ = ["Future", "FutureExt", "WaitAllFuture"]
