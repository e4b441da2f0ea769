"""Looking through a heap in order without taking it apart."""

import heapq


def in_order(heap):
    """Yield the items of a `heapq` list in order; the list may change meanwhile, what is yielded does not.

    Costs nothing for items that are not asked for, unlike sorting.
    """
    heap = list(heap)
    size = len(heap)
    front = [(heap[0], 0)] if heap else []
    while front:
        item, index = heapq.heappop(front)
        yield item
        for child in (2 * index + 1, 2 * index + 2):
            if child < size:
                heapq.heappush(front, (heap[child], child))
