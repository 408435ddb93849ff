"""The second module of Hermes Agent's checkpoints: `shadowsnap.compat.checkpoint_maintenance` in place of
`tools.checkpoint_maintenance`."""

from shadowsnap.compat.hermes import (  # noqa: F401
    auto_prune_from_config,
    checkpoint_footprint_notice,
    clear_all,
    clear_legacy,
    maybe_auto_prune_checkpoints,
    prune_checkpoints,
    store_status,
)
