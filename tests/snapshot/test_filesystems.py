"""Which file system a directory is on decides whether its time is believed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shadowsnap.snapshot.scan import directory_times_are_reliable, file_system_type


def mounts(*rows: str) -> bytes:
    """A list as the kernel gives it: "number, number of what it lies upon, place, kind" each."""
    lines = []
    for row in rows:
        number, on, place, kind = row.split(" ", 3)
        lines.append(f"{number} {on} 0:{number} / {place} rw,relatime shared:{number} - {kind} /dev/x rw\n")
    return "".join(lines).encode()


USUAL = ["20 1 / ext4", "21 20 /proc proc", "22 20 /home nfs4", "23 22 /home/me/local xfs", "24 20 /mnt fuse.x"]


@pytest.mark.parametrize(("place", "kind"), [
    (b"/", b"ext4"),
    (b"/srv/project", b"ext4"),
    (b"/home", b"nfs4"),
    (b"/home/me", b"nfs4"),
    (b"/homely", b"ext4"),  # the name alone begins alike
    (b"/home/me/local", b"xfs"),
    (b"/home/me/local/deep/er", b"xfs"),
    (b"/home/me/locality", b"nfs4"),
    (b"/mnt/far", b"fuse.x"),
])  # fmt: skip
def test_the_nearest_mount_above_a_directory_counts(place: bytes, kind: bytes) -> None:
    assert file_system_type(place, mounts(*USUAL)) == kind
    assert file_system_type(place, mounts(*reversed(USUAL))) == kind  # the order of the list is nobody's promise


@pytest.mark.parametrize(("name", "told"), [
    (b"with space", r"with\040space"),
    (b"tab\there", r"tab\011here"),
    (b"new\nline", r"new\012line"),
    (b"back\\slash", r"back\134slash"),
    (b"all \t\n\\", r"all\040\011\012\134"),
    (b"digits 12", r"digits\04012"),
    (b"\\040", r"\134040"),
    ("é".encode(), "é"),
])  # fmt: skip
def test_names_that_are_escaped_in_the_list_are_found(name: bytes, told: str) -> None:
    listed = mounts("20 1 / ext4", f"21 20 /mnt/{told} nfs")
    assert file_system_type(b"/mnt/" + name, listed) == b"nfs"
    assert file_system_type(b"/mnt/" + name + b"/below", listed) == b"nfs"
    assert file_system_type(b"/mnt/other", listed) == b"ext4"


def test_of_two_at_the_same_place_the_one_on_top_counts() -> None:
    listed = mounts("20 1 / ext4", "21 20 /data xfs", "22 21 /data nfs")
    assert file_system_type(b"/data/project", listed) == b"nfs"
    listed = mounts("20 1 / ext4", "21 22 /data xfs", "22 20 /data nfs")
    assert file_system_type(b"/data/project", listed) == b"xfs"


def test_what_another_mount_hides_does_not_count() -> None:
    """A local disk below a directory that a network was mounted over later."""
    before = mounts("20 1 / ext4", "21 20 /data/fast xfs", "22 20 /data nfs")
    assert file_system_type(b"/data/fast/project", before) == b"nfs"
    on_top = mounts("20 1 / ext4", "21 20 /data ext4", "22 21 /data/fast xfs", "23 21 /data nfs")
    assert file_system_type(b"/data/fast/project", on_top) == b"nfs"
    seen_again = mounts("20 1 / ext4", "21 20 /data nfs", "22 21 /data/fast xfs")
    assert file_system_type(b"/data/fast/project", seen_again) == b"xfs"


def test_a_root_that_lies_upon_another_counts() -> None:
    assert file_system_type(b"/project", mounts("1 1 / rootfs", "20 1 / overlay")) == b"overlay"


def test_nothing_is_known_without_a_root() -> None:
    assert file_system_type(b"/project", b"") == b""
    assert file_system_type(b"/project", mounts("21 20 /elsewhere ext4")) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="only there is such a list")
def test_the_list_of_this_machine_is_understood() -> None:
    listed = Path("/proc/self/mountinfo").read_bytes()
    assert file_system_type(b"/proc/self", listed) == b"proc"
    assert not directory_times_are_reliable(Path("/proc/self"))
    assert file_system_type(os.fsencode(Path.cwd()), listed) != b""
