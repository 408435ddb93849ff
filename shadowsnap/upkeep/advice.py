"""What to do about what went wrong, or was left out."""

from __future__ import annotations

SKIPPED = {
    "too-large": "raise max_file_size_mb if it should be captured",
    "unreadable": "let the agent's user read it, or exclude it",
    "special": "sockets, pipes and devices cannot be captured",
    "changing": "it was being written to; the next snapshot takes it in",
    "secret": "it looks like a secret; set include_secrets to capture such files",
    "unstorable": "git cannot store a path of this name",
    "undecided": "the ignore rules could not be had in time; look for patterns with many wildcards",
    "outside": "it lies outside the project: name the directory it belongs to",
    "repository": "the importer could not see into this repository",
    "damaged": "its content was lost; the checkpoints before it may still have it",
    "purged": "it was taken out of the checkpoints with `shadowsnap purge`",
}

FAILURES = {
    "GitMissing": "install git, or put it on the PATH of the agent",
    "DirectoryRefused": "work in a project's own directory, or name the files that matter",
    "DeadlineExceeded": "raise the deadline setting, or exclude what is large",
    "LockTimeout": "see what the process that holds the lock is doing; the lock goes with it",
    "StoreUnusable": "check the disk and the permissions of the store's directory",
    "DamagedObject": "run `shadowsnap doctor --repair`",
    "GitFailed": "run `shadowsnap doctor`",
    "OSError": "check the disk: free space, permissions",
    "PermissionError": "check who owns the store's directory",
}


def about_skipped(why: str) -> str:
    return SKIPPED.get(why, "")


def about_failure(kind: str, hint: str) -> str:
    """The error's own hint, or what usually helps."""
    return hint or FAILURES.get(kind, "run `shadowsnap doctor`")
