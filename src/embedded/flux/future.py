"""Futures: answers that have not come yet."""

from flux_embedded.kernel.composite import FutureExt, WaitAllFuture
from flux_embedded.kernel.future import Future

__all__ = ["Future", "FutureExt", "WaitAllFuture"]
