"""Which file system a directory is on decides whether its time is believed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shadowsnap.snapshot.scan import directory_times_are_reliable, file_system_type


def mounts(*rows: str) -> bytes:
    """Mountinfo as the kernel writes it, from rows of "id, parent id, path, type"."""
    lines = []
    for row in rows:
        number, on, location, kind = row.split(" ", 3)
        lines.append(f"{number} {on} 0:{number} / {location} rw,relatime shared:{number} - {kind} /dev/x rw\n")
    return "".join(lines).encode()


USUAL = ["20 1 / ext4", "21 20 /proc proc", "22 20 /home nfs4", "23 22 /home/me/local xfs", "24 20 /mnt fuse.x"]


@pytest.mark.parametrize(("location", "kind"), [
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
def test_the_nearest_mount_above_a_directory_counts(location: bytes, kind: bytes) -> None:
    assert file_system_type(location, mounts(*USUAL)) == kind
    assert file_system_type(location, mounts(*reversed(USUAL))) == kind  # the order is not guaranteed


@pytest.mark.parametrize(("name", "escaped"), [
    (b"with space", r"with\040space"),
    (b"tab\there", r"tab\011here"),
    (b"new\nline", r"new\012line"),
    (b"back\\slash", r"back\134slash"),
    (b"all \t\n\\", r"all\040\011\012\134"),
    (b"digits 12", r"digits\04012"),
    (b"\\040", r"\134040"),
    ("é".encode(), "é"),
])  # fmt: skip
def test_escaped_mount_points_are_found(name: bytes, escaped: str) -> None:
    listed = mounts("20 1 / ext4", f"21 20 /mnt/{escaped} nfs")
    assert file_system_type(b"/mnt/" + name, listed) == b"nfs"
    assert file_system_type(b"/mnt/" + name + b"/below", listed) == b"nfs"
    assert file_system_type(b"/mnt/other", listed) == b"ext4"


def test_of_two_mounts_at_one_path_the_upper_one_counts() -> None:
    listed = mounts("20 1 / ext4", "21 20 /data xfs", "22 21 /data nfs")
    assert file_system_type(b"/data/project", listed) == b"nfs"
    listed = mounts("20 1 / ext4", "21 22 /data xfs", "22 20 /data nfs")
    assert file_system_type(b"/data/project", listed) == b"xfs"


def test_a_hidden_mount_does_not_count() -> None:
    """A local disk below a directory that a network was mounted over later."""
    before = mounts("20 1 / ext4", "21 20 /data/fast xfs", "22 20 /data nfs")
    assert file_system_type(b"/data/fast/project", before) == b"nfs"
    on_top = mounts("20 1 / ext4", "21 20 /data ext4", "22 21 /data/fast xfs", "23 21 /data nfs")
    assert file_system_type(b"/data/fast/project", on_top) == b"nfs"
    seen_again = mounts("20 1 / ext4", "21 20 /data nfs", "22 21 /data/fast xfs")
    assert file_system_type(b"/data/fast/project", seen_again) == b"xfs"


def test_a_root_that_is_mounted_over_another_counts() -> None:
    assert file_system_type(b"/project", mounts("1 1 / rootfs", "20 1 / overlay")) == b"overlay"


def test_without_a_root_the_type_is_unknown() -> None:
    assert file_system_type(b"/project", b"") == b""
    assert file_system_type(b"/project", mounts("21 20 /elsewhere ext4")) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="only there is such a list")
def test_the_mountinfo_of_this_machine_is_understood() -> None:
    listed = Path("/proc/self/mountinfo").read_bytes()
    assert file_system_type(b"/proc/self", listed) == b"proc"
    assert not directory_times_are_reliable(Path("/proc/self"))
    if any(line.split()[4:5] == [b"/"] for line in listed.splitlines()):  # not in a changed root
        assert file_system_type(os.fsencode(Path.cwd()), listed) != b""
