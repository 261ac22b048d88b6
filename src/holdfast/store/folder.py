"""The folder of a database: its owner, and safe access to its files, which another user must not be able to plant.

Files belong to the owner of their folder, even if root creates them: a command that an administrator runs must not
leave a file that the server cannot read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from ..errors import HoldfastError

if sys.platform != "win32":
    import grp
    import pwd

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class FolderNotSafe(HoldfastError):
    """Another user could change the contents of the data folder."""

    code = "data_folder_not_safe"
    status = 503


def make_folder(folder: Path) -> None:
    """Create a private folder, with its parents. If root creates it, it belongs to the owner of the parent folder."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in reversed(missing):
        if (owner := _owner_to_keep(place.parent)) is not None:
            os.chown(place, *owner, follow_symlinks=False)


def check_folder(folder: Path, *, guest: bool = False) -> None:
    """Refuse a folder in which another user could plant or replace files.

    A `guest` is a command that root runs for the folder's owner. A server must have a folder of its own, or root's.
    """
    if sys.platform == "win32":
        return  # Windows has access control lists instead of these permissions
    about, user = os.stat(folder), os.geteuid()
    if about.st_uid not in (user, 0) and not (guest and user == 0):
        owner, us = user_name(about.st_uid), user_name(user)
        raise FolderNotSafe(
            f"The data folder {folder} belongs to {owner}, and this process is {us}. Start it as {owner}, "
            f"give the folder to {us} (chown -R), or choose another folder with --data."
        )
    if _others_can_write(about):
        raise FolderNotSafe(
            f"Other users can write to the data folder {folder} (mode {stat.S_IMODE(about.st_mode):o}). "
            f"Look for files that are not yours, then run: chmod go-w {folder}. Or choose another folder with --data."
        )


def who_else(path: Path) -> str | None:
    """Return, as a clause, why users besides this one and root can write to a file or folder; None if they cannot."""
    if sys.platform == "win32":
        return None  # Windows has access control lists, which file modes do not show
    try:
        about = path.stat()
    except OSError:
        return None  # reading the file raises the error
    if about.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user ({user_name(about.st_uid)})"
    if _others_can_write(about):
        return f"other users can write to {path} (mode {stat.S_IMODE(about.st_mode):o}, chmod go-w)"
    return None


def _others_can_write(about: os.stat_result) -> bool:
    if about.st_mode & stat.S_IWOTH:
        return True
    return bool(about.st_mode & stat.S_IWGRP) and not _is_private(about.st_gid, about.st_uid)


def _is_private(group: int, user: int) -> bool:
    """True for root's group, and for a group whose only member is the user, as Linux distributions create them."""
    if sys.platform == "win32" or group == 0:
        return True
    try:
        members, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return group == user  # a number without a name, as in a container
    return members.gr_name == name and set(members.gr_mem) <= {name}


def open_file(path: Path, flags: int) -> int:
    """Open a file of the folder and return its descriptor; a new one is for the folder's owner only.

    A link is not followed: it could lead to a file that this process may write, but the link's creator may not.
    """
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o600)
        is_new = True
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        check_file(path)
        file = os.open(path, flags | _NO_LINKS)
        is_new = False
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, file)
        if is_new and (owner := _owner_to_keep(path.parent)) is not None:
            os.chown(file, *owner)
        _check(os.fstat(file), path)
        undo.pop_all()
    return file


def read_file(path: Path) -> bytes | None:
    """Return the contents of a file of the folder; None if it does not exist. A link is not followed."""
    try:
        check_file(path)
        with open(os.open(path, os.O_RDONLY | _NO_LINKS), "rb") as file:
            _check(os.fstat(file.fileno()), path)
            return file.read()
    except FileNotFoundError:
        return None


def check_file(path: Path) -> None:
    """Refuse anything but a plain file that belongs to the folder's owner, root or this process."""
    _check(os.lstat(path), path)


def _check(about: os.stat_result, path: Path) -> None:
    is_linked = about.st_nlink > 1 and _owner_to_keep(path.parent) is not None
    if not stat.S_ISREG(about.st_mode) or is_linked:
        raise FolderNotSafe(f"{path} is a link, or not a regular file. Holdfast follows no links there: delete it.")
    if sys.platform != "win32" and about.st_uid not in (os.stat(path.parent).st_uid, os.geteuid(), 0):
        owner = user_name(about.st_uid)
        raise FolderNotSafe(
            f"{path} belongs to {owner}, who does not own the data folder. Delete it, or change its owner."
        )


def _owner_to_keep(folder: Path) -> tuple[int, int] | None:
    """Return the user and group that files of root in a folder must get; None if no change is needed."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return None
    about = os.stat(folder)
    return (about.st_uid, about.st_gid) if about.st_uid != 0 else None


def user_name(user: int) -> str:
    """Return a user's name, or the number if it has none."""
    if sys.platform == "win32":
        return f"user {user}"
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
