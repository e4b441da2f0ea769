"""Another name of :mod:`flux.resource.pool.masks`, for pools of sites that import it from here."""

from flux.resource.pool.masks import (
    idset_text,
    lowest,
    mask_of,
    members,
    parse_idset,
    popcount,
    runs,
    take,
    to_mask,
)

__all__ = (
    "idset_text", "lowest", "mask_of", "members", "parse_idset", "popcount", "runs", "take", "to_mask",
)  # fmt: skip
