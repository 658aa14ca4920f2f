"""What the Docker reference does: the same deeds as Hutch, by its SDK."""

from __future__ import annotations

import io
import tarfile
from typing import Any

from bench.docker_engine import IMAGE
from bench.references import ECHO


class DockerSide:
    """One living container, and the deeds that are compared."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.version: str = client.version()["Version"]
        self._container = self._run()

    def _run(self) -> Any:
        return self._client.containers.run(
            IMAGE, ["sleep", "infinity"], detach=True, network_mode="none", working_dir="/workspace"
        )

    def execute(self, command: str = ECHO) -> str:
        return _executed(self._container, command)

    def whole_life(self) -> None:
        """Create, first command, remove."""
        container = self._run()
        _executed(container, ECHO)
        container.remove(force=True)

    def upload(self, data: bytes) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo("data.bin")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        if not self._container.put_archive("/workspace", packed.getvalue()):
            raise RuntimeError("docker took no archive")

    def download(self) -> bytes:
        pieces, _ = self._container.get_archive("/workspace/data.bin")
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            member = archive.extractfile("data.bin")
            if member is None:
                raise RuntimeError("docker gave no file")
            return member.read()


def _executed(container: Any, command: str) -> str:
    done = container.exec_run(["bash", "-c", command], demux=True)
    if done.exit_code != 0:
        raise RuntimeError(f"docker exec failed with {done.exit_code}: {done.output}")
    return (done.output[0] or b"").decode()
