"""Routes for tables of jobs that are too long to be sent: a page at a time, searched and sorted here."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from gpuwise.api.access.caller import AsViewer
from gpuwise.api.errors import documented
from gpuwise.api.schema import views
from gpuwise.api.schema.parameters import ArrayId, Limit, Words, arrays
from gpuwise.api.schema.tables import Array, Table, array_view, table_view
from gpuwise.service.live.job_tables import TableQuery

router = APIRouter(tags=["jobs"])

MAX_SEARCH = 200
Search = Annotated[
    str,
    Query(
        max_length=MAX_SEARCH,
        description="Words that must all match, in the id, name, user, queue or status; user:ada looks in one of them.",
    ),
]
Sort = Annotated[str | None, Query(max_length=60, description="A column; by default the order of the queue.")]


@router.get("/tables/{table}", responses=documented(Table, "A page of the table."))
async def table(
    call: AsViewer,
    table: Literal["queue", "running", "waiting", "ended"],
    search: Search = "",
    sort: Sort = None,
    descending: Annotated[bool, Query(description="The largest value first.")] = False,
    grouped: Annotated[bool, Query(description="An array is one row.")] = True,
    open_: Annotated[Words, Query(alias="open")] = [],  # noqa: B006
    offset: Annotated[int, Query(ge=0, le=2**31, description="Number of rows before the page.")] = 0,
    limit: Limit = 50,
) -> Response:
    """Search and sort jobs, a page at a time, with totals."""
    query = TableQuery(
        search=search,
        sort=sort,
        descending=descending,
        grouped=grouped,
        open_arrays=arrays(open_),
        offset=offset,
        limit=limit,
    )
    tables = call.service.tables
    found = await (tables.ended(call.caller, query) if table == "ended" else tables.live(call.caller, table, query))
    return views.json_response(table_view(found, call.caller.principal.may_see))


@router.get("/arrays/{array}", responses=documented(Array, "The array.", 404))
async def array(call: AsViewer, array: ArrayId) -> Response:
    """Count the tasks of an array by status."""
    found = await call.service.tables.array(array)
    return views.json_response(array_view(found, call.caller.principal.may_see))
