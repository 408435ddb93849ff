"""`datetime` and `timezone`, the very same, without what their module does first: older versions
define everything once more in Python and throw it away (1 ms, which a hook does not have)."""

from __future__ import annotations

__all__ = ["datetime", "timezone"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime, timezone
else:
    try:
        from _datetime import datetime, timezone
    except ImportError:
        from datetime import datetime, timezone
