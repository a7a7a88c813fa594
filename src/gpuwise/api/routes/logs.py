"""The route to the output of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response

from gpuwise.api.access.caller import AsViewer, Call
from gpuwise.api.errors import documented_problems
from gpuwise.api.schema.parameters import JobId
from gpuwise.service.live.job_logs import Piece

router = APIRouter(prefix="/jobs", tags=["jobs"])

MAX_BYTES = 8 << 20
PIECE_BYTES = 256 << 10
POLL_S = 0.2
_TEXT = "text/plain; charset=utf-8"

Offset = Annotated[int, Query(ge=-(2**62), le=2**62, description="First byte; negative counts from the end.")]
Size = Annotated[int, Query(ge=1, le=MAX_BYTES, description="Maximum number of bytes; ignored with follow.")]
Follow = Annotated[bool, Query(description="Stream until the job has ended.")]


@router.get(
    "/{uid}/logs",
    response_class=Response,
    responses={
        200: {
            "description": "The log, or the part that was requested. Bytes that are not UTF-8 are question marks.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "headers": {
                "X-Log-Start": {"description": "Offset of the first byte.", "schema": {"type": "integer"}},
                "X-Log-Offset": {"description": "Offset to continue from.", "schema": {"type": "integer"}},
                "X-Log-Size": {"description": "Bytes in the log now.", "schema": {"type": "integer"}},
            },
        },
        **documented_problems(404, 409),
    },
)
async def logs(
    call: AsViewer, uid: JobId, offset: Offset = 0, limit: Size = 1 << 20, follow: Follow = False
) -> Response:
    """Read a job's standard output and error, of all its attempts."""
    await call.service.jobs.job(call.caller, uid)
    if follow:
        first = await _read(call, uid, offset, PIECE_BYTES)
        return call.stream(_followed(call, uid, first), _TEXT, {"X-Log-Start": str(first.start)})
    piece = await _read(call, uid, offset, limit)
    headers = {"X-Log-Start": str(piece.start), "X-Log-Offset": str(piece.next), "X-Log-Size": str(piece.size)}
    return Response(piece.data, headers=headers, media_type=_TEXT)


async def _followed(call: Call, uid: str, piece: Piece) -> AsyncIterator[bytes]:
    """The log from a piece on; ends when the job has ended and all of its output was read."""
    service, ended = call.service, False
    while not service.feed.closed and service.access.is_valid(call.caller.principal):
        if piece.data:
            yield piece.data
        elif ended:
            return
        else:
            await asyncio.sleep(POLL_S)
        ended = ended or await service.workers.run(service.jobs.is_over, uid)
        piece = await _read(call, uid, piece.next, PIECE_BYTES, complete=ended)


async def _read(call: Call, uid: str, offset: int, limit: int, *, complete: bool = False) -> Piece:
    return await call.service.workers.run(call.service.logs.read, uid, offset, limit, complete=complete)
