"""Search: by words, and by meaning where there is an embedder; the two lists merged by ranks."""

from __future__ import annotations

from hutch.engine.drive.drive import Drive
from hutch.engine.drive.embedding import EmbeddingFailed, Vector
from hutch.engine.drive.texts import Span, cut, snippet, text_of
from hutch.model.drive import HITS_AT_MOST, DriveHit, DriveHits, SearchedBy, drive_path
from hutch.model.errors import InvalidRequest
from hutch.store.drive.passages import NearPassage
from hutch.store.drive.words import words_of

QUESTION_CHARACTERS = 4_000
_RANK_BASE = 60  # reciprocal rank fusion, as its authors chose it
_DEEPER = 3  # how many more than wanted each list brings, so that they can agree
_NO_EMBEDDER = "by words alone: no embedder is set (HUTCH_EMBEDDINGS_URL and HUTCH_EMBEDDINGS_MODEL)"


class Search:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._store = drive.store
        self._indexer = drive.indexer

    async def search(self, tenant: str, user_id: str, query: str, *, path: str = "/", limit: int = 20) -> DriveHits:
        """Files below a folder, the best first. Raises: InvalidRequest, PathRejected."""
        folder = drive_path(path, folder=True)
        if not isinstance(query, str) or not query.strip() or len(query) > QUESTION_CHARACTERS:
            raise InvalidRequest(f"A search needs a text of 1 to {QUESTION_CHARACTERS} characters.")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= HITS_AT_MOST:
            raise InvalidRequest(f"limit is from 1 to {HITS_AT_MOST}.")
        owner = await self._drive.owner(tenant, user_id)
        by, vector, why = await self._asked(query)
        if owner is None:
            return {"hits": [], "by": by, "note": why}
        left = await self._indexer.caught_up(owner)
        asked = words_of(query)
        by_words = await self._store.find_words(owner, asked, folder, limit * _DEEPER)
        near: list[NearPassage] = []
        if vector is not None and self._indexer.embedder is not None:
            model = self._indexer.embedder.model
            near = await self._store.nearest(owner, model, vector, folder, limit * _DEEPER)
        scores = merged([one.file_id for one in by_words], [one.file_id for one in near])[:limit]
        paths = {one.file_id: one.path for one in by_words} | {one.file_id: one.path for one in near}
        spans = {one.file_id: Span(one.starts, one.ends) for one in near}
        hits = await self._hits(scores, paths, spans, asked)
        notes = [note for note in (why, f"{left} files are not indexed yet" if left else None) if note]
        return {"hits": hits, "by": by, "note": "; ".join(notes) or None}

    async def _asked(self, query: str) -> tuple[SearchedBy, Vector | None, str | None]:
        """The question's vector, or why there is none."""
        embedder = await self._indexer.ready()
        if embedder is None:
            trouble = self._indexer.trouble
            return "words", None, _NO_EMBEDDER if trouble is None else f"by words alone: {trouble}"
        try:
            return "words+meaning", await embedder.query(query), None
        except EmbeddingFailed as error:
            return "words", None, f"by words alone: {error}"

    async def _hits(
        self, scores: list[tuple[int, float]], paths: dict[int, str], spans: dict[int, Span], asked: list[str]
    ) -> list[DriveHit]:
        texts: dict[int, str] = {}
        for start in range(0, len(scores), 8):  # heads are up to 256 KiB each
            some = [file_id for file_id, _ in scores[start : start + 8]]
            for file_id, _, head in await self._store.heads(some):
                text = text_of(head) or ""
                lowered = text.lower()
                if file_id in spans and not any(word.lower() in lowered for word in asked):
                    texts[file_id] = cut(text, spans[file_id])
                else:
                    texts[file_id] = snippet(text, asked)
        return [
            {"path": paths[file_id], "score": round(score, 6), "snippet": texts.get(file_id, "")}
            for file_id, score in scores
        ]


def merged(*lists: list[int]) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: what stands high in several lists stands highest."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, one in enumerate(ranked, 1):
            scores[one] = scores.get(one, 0.0) + 1 / (_RANK_BASE + rank)
    return sorted(scores.items(), key=lambda item: -item[1])
