"""Routes of SQL: one read-only statement over a snapshot, run in a child process."""

from typing import Any

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models, row_streams
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import RequestContext, RouteSpec


async def by_body(context: RequestContext) -> Response:
    """Run a statement."""
    context.parameters(models.Nothing)
    given = await context.body(models.Statement)
    return replies.json_reply(await _run(context, given))


async def as_csv(context: RequestContext) -> Response:
    """Run a statement and return its rows as CSV."""
    given = context.parameters(models.StatementParameters)
    if given.sql is None:
        raise Problem("invalid-parameter", "parameter 'sql' is missing; send sql.csv?sql=SELECT …")
    reply = await _run(context, models.Statement(sql=given.sql, **given.model_dump(exclude={"sql"})))
    names = [column["name"] if isinstance(column, dict) else column for column in reply["columns"]]
    headers = {"Facetline-Truncated": "true" if reply["truncated"] else "false"}
    token = replies.token_of(reply)
    if token is not None:
        headers[replies.AS_OF] = token
    return Response(row_streams.csv_text([names, *reply["rows"]]), 200, headers, row_streams.CSV)


async def _run(context: RequestContext, given: models.Statement) -> dict[str, Any]:
    async with context.service.statements.one(context.caller.name):
        return await context.node.sql(
            context.caller,
            given.sql,
            given.params,
            limit=given.limit,
            timeout_ms=given.timeout_ms,
            agents=given.agents,
            with_texts=given.fields is not None,
        )


_PROBLEMS = ("sql-not-read-only", "sql-error", "sql-too-large", "sql-timeout", "invalid-query")
ROUTES = (
    RouteSpec(
        "POST",
        "/v1/sql",
        "run_sql",
        by_body,
        "sql",
        "Run one read-only statement",
        {200: {replies.JSON: reply_models.SqlReply}},
        parameters=models.Nothing,
        body=models.Statement,
        everywhere=True,
        problems=("invalid-json", "invalid-request", "unsupported-media-type", *_PROBLEMS),
    ),
    RouteSpec(
        "GET",
        "/v1/sql.csv",
        "run_sql_as_csv",
        as_csv,
        "sql",
        "Run one read-only statement and return its rows as CSV",
        {200: {row_streams.CSV: None}},
        parameters=models.StatementParameters,
        everywhere=True,
        problems=_PROBLEMS,
    ),
)
