"""What turns texts into numbers that are near where meanings are: a service, or an object handed in."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any, Protocol

from hutch.model.errors import InvalidRequest

SECONDS = 60.0
BATCH = 64
DIMENSIONS_AT_MOST = 16_000  # what pgvector can hold
_ANSWER_BYTES = 64 * 1024 * 1024
Vector = list[float]


class EmbeddingFailed(Exception):
    """Why there are no numbers; search by words goes on without them."""


class Embedder(Protocol):
    model: str  # passages of one model are never compared with those of another

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        """Raises: EmbeddingFailed."""

    async def query(self, text: str) -> Vector:
        """Raises: EmbeddingFailed."""


class ObjectEmbedder:
    """Any object with `embed_documents` and `embed_query`, such as LangChain's `Embeddings`."""

    def __init__(self, made: Any) -> None:
        """Raises: InvalidRequest."""
        if not callable(getattr(made, "embed_documents", None)) or not callable(getattr(made, "embed_query", None)):
            raise InvalidRequest("embeddings must be an object with embed_documents and embed_query.")
        self.made = made
        kind = type(made)
        self.model = f"{kind.__module__}.{kind.__qualname__}:{getattr(made, 'model', '')}"[:500]

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        return _vectors(await self._called(self.made.embed_documents, list(texts)), len(texts))

    async def query(self, text: str) -> Vector:
        return _vectors([await self._called(self.made.embed_query, text)], 1)[0]

    async def _called(self, function: Any, argument: Any) -> Any:
        try:
            async with asyncio.timeout(SECONDS):
                return await asyncio.to_thread(function, argument)
        except TimeoutError:
            raise EmbeddingFailed(f"the embeddings object took more than {SECONDS:.0f} seconds") from None
        except Exception as error:
            raise EmbeddingFailed(f"the embeddings object failed ({type(error).__name__}: {error!s:.200})") from error


class ServiceEmbedder:
    """An OpenAI-compatible address: POST {url}/embeddings."""

    def __init__(self, url: str, model: str, key: str | None) -> None:
        self.model = model
        self._url = url.rstrip("/") + "/embeddings"
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        import httpx

        try:
            async with httpx.AsyncClient(timeout=SECONDS) as client:
                body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
                async with client.stream("POST", self._url, json=body, headers=self._headers) as answer:
                    raw = await _bounded(answer.aiter_bytes())
        except httpx.HTTPError as error:
            raise EmbeddingFailed(f"the embeddings service does not answer ({type(error).__name__})") from error
        if answer.status_code != 200:
            raise EmbeddingFailed(f"the embeddings service refused with status {answer.status_code}")
        try:
            rows = sorted(json.loads(raw)["data"], key=lambda row: int(row["index"]))
            return _vectors([row["embedding"] for row in rows], len(texts))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise EmbeddingFailed("the embeddings service gave an answer that cannot be read") from error

    async def query(self, text: str) -> Vector:
        return (await self.documents([text]))[0]


async def _bounded(pieces: Any) -> bytes:
    found = bytearray()
    async for piece in pieces:
        found += piece
        if len(found) > _ANSWER_BYTES:
            raise EmbeddingFailed("the embeddings service gave an answer that is too long")
    return bytes(found)


def _vectors(answer: Any, wanted: int) -> list[Vector]:
    """Raises: EmbeddingFailed for what is no list of vectors of one length."""
    try:
        found = [[float(number) for number in vector] for vector in answer]
    except (TypeError, ValueError):
        found = []
    sizes = {len(vector) for vector in found}
    if len(found) != wanted or len(sizes) != 1 or not 0 < min(sizes) <= DIMENSIONS_AT_MOST:
        raise EmbeddingFailed("the embedder did not answer with one vector for each text")
    if not all(math.isfinite(number) for vector in found for number in vector):
        raise EmbeddingFailed("the embedder answered with numbers that are not finite")
    return found
