"""Conversations: whether all their pieces are there. One that lost something cannot be read, and git
refuses to pack anything as long as a ref leads to it."""

from __future__ import annotations

from collections.abc import Iterator

from shadowsnap.errors import DamagedObject
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.runner import Git
from shadowsnap.git.treesearch import TreeSearch
from shadowsnap.model import Finding
from shadowsnap.store.layout import Store
from shadowsnap.store.tips import ATTACHMENTS
from shadowsnap.upkeep.examine_refs import every_ref, remove_refs
from shadowsnap.upkeep.quarantine import Quarantine


def find_attachments(store: Store, git: Git, sound: set[str]) -> Iterator[Finding]:
    """Attachments that are not whole any more. (Those that lead nowhere are dangling refs.)"""
    with ObjectReader(git) as reader:
        search = TreeSearch(lambda name: reader.read(name, b"tree"), lambda _, __, name: name not in sound)
        for ref in every_ref(store):
            if ref.name.startswith(f"{ATTACHMENTS}/") and ref.value in sound:
                try:
                    missing = search.find(ref.value)
                except DamagedObject:
                    continue  # not a tree: whoever made it knows
                if missing:
                    yield _damaged(ref.name, ref.value, len(missing))


def _damaged(ref: str, value: str, missing: int) -> Finding:
    checkpoint = ref.rpartition("-")[2][:8]
    meaning = f"the conversation that is kept with checkpoint {checkpoint} lost {missing} of its pieces"
    repair = "set it aside; the checkpoint stays as it is"
    return Finding("conversation-damaged", "error", ref, meaning, repair, {"value": value})


def set_attachment_aside(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    remove_refs(store, [finding.subject], quarantine)


MENDS = {"conversation-damaged": set_attachment_aside}
