"""The changes the mirror makes to a disk, one method each.

The seam at which tests stop the mirror after any step. Directories and copies end up readable by
all whatever the agent's umask: the users of containers are not root.
"""

import os
import shutil
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from gpumanager.volume.layout import File


class Disk:
    def make_directory(self, path: Path) -> None:
        path.mkdir()
        path.chmod(0o755)

    def place(self, file: File, target: Path) -> None:
        """Put the file there: a hard link where the file system allows it, else a copy."""
        if file.content is not None:
            self._write(BytesIO(file.content), file.source, target)
            return
        try:
            os.link(file.source, target)
        except OSError:
            with file.source.open("rb") as origin:
                self._write(origin, file.source, target)

    def _write(self, content: BinaryIO, source: Path, target: Path) -> None:
        with target.open("xb") as copy:
            shutil.copyfileobj(content, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        shutil.copymode(source, target)

    def link(self, target: str, path: Path) -> None:
        path.symlink_to(target)

    def sync(self, directory: Path) -> None:
        """Make the names in a directory survive a power cut."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Atomic; replaces a symbolic link that stands there."""
        path.rename(target)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)
