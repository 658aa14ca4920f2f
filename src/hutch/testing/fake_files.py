"""An in-memory workspace: folders, files and symlinks in dicts, with the path rules of a real one.

A path never leaves the workspace: `..` above it, absolute paths and links that lead out are `PathRejected`.
"""

from __future__ import annotations

import asyncio
import posixpath
import stat
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from hutch.model.clock import iso
from hutch.model.errors import FileConflict, HutchError, InvalidRequest, PathRejected, SandboxFileNotFound
from hutch.model.files import FileEvent, FileInfo, FileKind
from hutch.providers.base import FileIdentity

_MAX_LINKS = 40  # what the kernel follows before it says "loop"
_MAX_NAME_BYTES = 255
_MAX_QUEUED_EVENTS = 4096


@dataclass(slots=True, eq=False)
class File:
    data: bytes = b""
    mode: int = 0o644
    modified: float = field(default_factory=time.time)


@dataclass(slots=True, eq=False)
class Folder:
    children: dict[str, Node] = field(default_factory=dict[str, "Node"])
    mode: int = 0o755
    modified: float = field(default_factory=time.time)


@dataclass(slots=True, eq=False)
class Link:
    target: str
    mode: int = 0o777
    modified: float = field(default_factory=time.time)


@dataclass(slots=True, eq=False)
class Special:
    """A FIFO, socket or device: it has a name and can never be opened."""

    kind_bits: int = stat.S_IFIFO
    mode: int = 0o644
    modified: float = field(default_factory=time.time)


Node = File | Folder | Link | Special


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: the folder, the last name (empty for the workspace itself), and what is there."""

    folder: Folder
    name: str
    node: Node | None
    path: str  # with all links in it resolved

    def existing(self) -> Node:
        if self.node is None:
            raise SandboxFileNotFound(f"{self.path!r} does not exist in the workspace", path=self.path)
        return self.node


class Tree:
    """The workspace of one sandbox. It outlives the machine."""

    def __init__(self) -> None:
        self.root = Folder()
        self._watches: list[Watch] = []

    # --- finding -----------------------------------------------------------------------------------------------

    def find(self, path: str, *, follow: bool = True) -> Place:
        """Raises: PathRejected, SandboxFileNotFound (a folder on the way is missing)."""
        parts = _split(path)
        chain: list[tuple[str, Folder]] = [("", self.root)]
        links = 0
        while parts:
            name = parts.pop(0)
            if name == "..":
                if len(chain) == 1:
                    raise PathRejected(f"{path!r} leaves the workspace", path=path)
                chain.pop()
                continue
            node = chain[-1][1].children.get(name)
            if isinstance(node, Link) and (parts or follow):
                links += 1
                if links > _MAX_LINKS:
                    raise PathRejected(f"{path!r}: too many links, one leads to itself", path=path)
                parts = _split(node.target) + parts
                continue
            here = posixpath.join(*(step for step, _ in chain), name)
            if not parts:
                return Place(chain[-1][1], name, node, here)
            if node is None:
                raise SandboxFileNotFound(f"{here!r} does not exist in the workspace", path=path)
            if not isinstance(node, Folder):
                raise PathRejected(f"{here!r} is not a folder", path=path)
            chain.append((name, node))
        folder = chain[-1][1]
        return Place(folder, "", folder, posixpath.join(*(step for step, _ in chain)) or ".")

    def _named(self, path: str) -> Place:
        """A place whose own name can be changed: never the workspace itself."""
        place = self.find(path, follow=False)
        if not place.name:
            raise PathRejected(f"{path!r} names the workspace itself", path=path)
        return place

    def file(self, path: str) -> File:
        """The regular file at `path`. Raises: SandboxFileNotFound, PathRejected (another kind)."""
        node = self.find(path).existing()
        if not isinstance(node, File):
            raise PathRejected(f"{path!r} is not a regular file", path=path)
        return node

    # --- changing ----------------------------------------------------------------------------------------------

    def put(self, path: str, node: Node, *, parents: bool = False) -> None:
        """Place `node` at `path`; a file or link already there is replaced at once, a folder never."""
        if parents:
            self.mkdir(posixpath.dirname(path), parents=True)
        place = self._named(path)
        if isinstance(place.node, Folder):
            raise PathRejected(f"{path!r} is a folder", path=path)
        place.folder.children[place.name] = node
        self._emit("modified" if place.node is not None else "created", place.path, isinstance(node, Folder))

    def write(self, path: str, data: bytes) -> None:
        """Replace what a file holds, as a command in the sandbox would: links are followed."""
        place = self.find(path)
        if isinstance(place.node, File):
            place.node.data, place.node.modified = data, time.time()
            self._emit("modified", place.path, False)
        else:
            self.put(place.path, File(data))

    def mkdir(self, path: str, *, parents: bool) -> None:
        made = ""
        names = [name for name in _split(path) if name != ".."] if parents else []
        for name in names[:-1]:
            made = posixpath.join(made, name)
            if self.find(made).node is None:
                self.put(made, Folder())
        if parents and isinstance(self.find(path).node, Folder):
            return
        place = self._named(path)
        if place.node is not None:
            raise FileConflict(f"{path!r} already exists", path=path)
        self.put(path, Folder())

    def move(self, source: str, target: str, *, overwrite: bool) -> None:
        old, new = self._named(source), self._named(target)
        node = old.existing()
        if new.node is node:
            return
        if new.node is not None and (not overwrite or isinstance(new.node, Folder) != isinstance(node, Folder)):
            raise FileConflict(f"{target!r} already exists", path=target)
        if isinstance(new.node, Folder) and new.node.children:
            raise FileConflict(f"{target!r} is a folder that is not empty", path=target)
        if isinstance(node, Folder) and (new.path + "/").startswith(old.path + "/"):
            raise PathRejected(f"{source!r} cannot be moved into itself", path=target)
        del old.folder.children[old.name]
        new.folder.children[new.name] = node
        self._emit("moved_from", old.path, isinstance(node, Folder))
        self._emit("moved_to", new.path, isinstance(node, Folder))

    def remove(self, path: str, *, recursive: bool) -> None:
        place = self._named(path)
        node = place.existing()
        if isinstance(node, Folder) and node.children and not recursive:
            raise FileConflict(f"{path!r} is a folder that is not empty; pass recursive=True", path=path)
        del place.folder.children[place.name]
        self._emit("removed", place.path, isinstance(node, Folder))

    # --- looking -----------------------------------------------------------------------------------------------

    def stat(self, path: str) -> FileInfo:
        place = self.find(path, follow=False)
        return _info(place.path, place.existing())

    def identity(self, path: str) -> FileIdentity:
        node = self.find(path, follow=False).existing()
        _, kind_bits, size = _kind(node)
        return FileIdentity(kind_bits | node.mode, size, round(node.modified * 1e9), id(node))

    def list(self, path: str, *, recursive: bool, max_entries: int) -> list[FileInfo]:
        place = self.find(path)
        node = place.existing()
        if not isinstance(node, Folder):
            raise PathRejected(f"{path!r} is not a folder", path=path)
        if max_entries < 1:
            raise InvalidRequest(f"max_entries must be at least 1, not {max_entries}")
        found: list[FileInfo] = []
        for entry_path, child in _walk(node, "" if place.path == "." else place.path, recursive):
            if len(found) == max_entries:
                break
            found.append(_info(entry_path, child))
        return found

    def usage(self) -> tuple[int, int]:
        """Bytes and entries."""
        nodes = [node for _, node in _walk(self.root, "", recursive=True)]
        return sum(len(node.data) for node in nodes if isinstance(node, File)), len(nodes)

    # --- watching ----------------------------------------------------------------------------------------------

    def watch(self, path: str, *, recursive: bool) -> Watch:
        place = self.find(path)
        place.existing()
        watch = Watch(self, "" if place.path == "." else place.path, recursive)
        self._watches.append(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    def end_watches(self, reason: HutchError) -> None:
        for watch in list(self._watches):
            watch.end(reason)

    def _emit(self, kind: str, path: str, is_directory: bool) -> None:
        for watch in self._watches:
            watch.offer(_event(kind, path, is_directory))


class Watch(AsyncIterator[FileEvent]):
    def __init__(self, tree: Tree, base: str, recursive: bool) -> None:
        self._tree = tree
        self._base = base
        self._recursive = recursive
        self._queue: asyncio.Queue[FileEvent | HutchError] = asyncio.Queue()

    def offer(self, event: FileEvent) -> None:
        folder = posixpath.dirname(event["path"])
        below = not self._base or folder.startswith(self._base + "/")
        if not (event["path"] == self._base or folder == self._base or (self._recursive and below)):
            return
        if self._queue.qsize() < _MAX_QUEUED_EVENTS:
            self._queue.put_nowait(event)
        elif self._queue.qsize() == _MAX_QUEUED_EVENTS:
            self._queue.put_nowait(_event("overflow", self._base or ".", True))

    def end(self, reason: HutchError) -> None:
        self._tree.forget(self)
        self._queue.put_nowait(reason)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> FileEvent:
        item = await self._queue.get()
        if isinstance(item, HutchError):
            raise item
        return item

    async def aclose(self) -> None:
        self._tree.forget(self)


def _split(path: str) -> list[str]:
    if path.startswith("/"):
        raise PathRejected(f"{path!r} is absolute; paths are relative to the workspace", path=path)
    if "\0" in path or not path:
        raise PathRejected(f"{path!r} is not a path", path=path)
    names = [name for name in path.split("/") if name not in ("", ".")]
    if any(len(name.encode("utf-8", "surrogateescape")) > _MAX_NAME_BYTES for name in names):
        raise PathRejected(f"a name in {path[:80]!r}… is longer than {_MAX_NAME_BYTES} bytes", path=path[:300])
    return names


def _walk(folder: Folder, base: str, recursive: bool) -> Iterator[tuple[str, Node]]:
    waiting = [(base, folder)]
    while waiting:
        here, current = waiting.pop(0)
        for name, node in list(current.children.items()):
            path = posixpath.join(here, name)
            yield path, node
            if recursive and isinstance(node, Folder):
                waiting.append((path, node))


def _event(kind: str, path: str, is_directory: bool) -> FileEvent:
    match kind:
        case "created" | "modified" | "removed" | "moved_from" | "moved_to" | "overflow":
            return FileEvent(kind=kind, path=path, is_directory=is_directory)
        case _:
            raise ValueError(f"unknown event {kind!r}")


def _kind(node: Node) -> tuple[FileKind, int, int]:
    """What `stat` calls it, the type bits of its mode, and its size."""
    match node:
        case File():
            return "file", stat.S_IFREG, len(node.data)
        case Folder():
            return "directory", stat.S_IFDIR, 4096
        case Link():
            return "symlink", stat.S_IFLNK, len(node.target)
        case Special():
            return "other", node.kind_bits, 0


def _info(path: str, node: Node) -> FileInfo:
    kind, bits, size = _kind(node)
    return FileInfo(
        path=path,
        name=posixpath.basename(path),
        kind=kind,
        size_bytes=size,
        modified=iso(node.modified),
        permissions=stat.filemode(bits | node.mode),
        target=node.target if isinstance(node, Link) else None,
    )
