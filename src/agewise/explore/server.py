"""What answers the browser: on the loopback address only, to pages of its own only."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from importlib.resources import files

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agewise.errors import AgewiseError, InvalidInput
from agewise.explore import page
from agewise.explore.choices import Choices
from agewise.explore.model import Model
from agewise.explore.recipes import PICTURES, SAVED
from agewise.explore.uploads import LIMIT_WORDS, MOST_BYTES, Uploads
from agewise.report.pages import style

HOST = "127.0.0.1"
USUAL_PORT = 8642
"""Where the explorer is unless told otherwise, or unless somebody else is there."""
OWN = "x-agewise"
"""A header that pages of others cannot send along without being asked first."""
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    b"frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
"""Nothing is loaded from, or sent to, any other place; a browser holds the page to it."""


class _Headers:
    """Adds those headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS.items()]
            await send(message)

        await self.app(scope, receive, sending)


Answer = Callable[[Request], Response]


class Explorer:
    """What the page asks for, and what it gets."""

    def __init__(self, model: Model, uploads: Uploads) -> None:
        self.model, self.uploads = model, uploads

    def start(self, request: Request) -> Response:
        """The page itself; it comes up whatever is in its address, and then says what is wrong."""
        wrong = None
        try:
            choices = self.model.read(_query(request.query_params))
        except AgewiseError as error:
            wrong = error
            source = self.model.sources.get(request.query_params.get("source", ""))
            source = source or self.model.source(None)
            choices = Choices.of(source.key, source.problem)
        return HTMLResponse(page.whole_page(self.model, choices, wrong))

    def part(self, write: Callable[[Model, Choices], str]) -> Answer:
        """A part of the page."""
        return lambda request: self._answer(request, lambda one: (write(self.model, one), 0))

    def picture(self, request: Request) -> Response:
        """A picture, as far as it is."""
        key, narrow = request.path_params["key"], request.query_params.get("narrow") == "1"
        if key not in PICTURES:
            return Response("No such picture.", 404)
        return self._answer(request, lambda one: page.picture_of(self.model, key, one, narrow))

    def _answer(self, request: Request, write: Callable[[Choices], tuple[str, int]]) -> Response:
        """A refusal is a part of the page like any other, and no error of the browser's."""
        try:
            text, still = write(self.model.read(_query(request.query_params)))
            headers = {"x-agewise-open": str(still)}
        except AgewiseError as error:
            text, headers = page.refused(error), {"x-agewise-refused": "1"}
        return HTMLResponse(text, headers=headers)

    def file(self, name: str, kind: str, write: Callable[[Model, Choices], str]) -> Answer:
        """A file to save."""

        def answer(request: Request) -> Response:
            try:
                text = write(self.model, self.model.read(_query(request.query_params)))
            except AgewiseError as error:
                return Response(str(error), 422)
            headers = {"content-disposition": f'attachment; filename="{name}"'}
            return Response(text, media_type=kind, headers=headers)

        return answer

    def report(self, request: Request) -> Response:
        """The report, with the statement if one was made."""
        stated = request.query_params.get("statement") == "1"
        write = self.file("report.html", "text/html", lambda m, one: page.report(m, one, stated))
        return write(request)

    async def receive(self, request: Request) -> Response:
        """A file of readings, as it comes in."""
        if OWN not in request.headers:
            return Response("Only the explorer's own page may send readings.", 403)
        job = self.uploads.open(request.query_params.get("name", ""), request.query_params)
        size = 0
        try:
            with job.path.open("wb") as out:
                async for block in request.stream():
                    size += len(block)
                    if size <= MOST_BYTES:  # the rest is let pass, so that the answer is read
                        out.write(block)
        except (ClientDisconnect, OSError) as error:
            self.uploads.discard(job)
            return JSONResponse({"failure": f"{job.name} did not arrive whole ({error})."})
        if not 0 < size <= MOST_BYTES:
            self.uploads.discard(job)
            allowed = f"1 or more, {LIMIT_WORDS}"
            refusal = InvalidInput(f"size of {job.name}", f"{size:,} bytes", allowed)
            return JSONResponse({"failure": str(refusal)})
        self.uploads.begin(job)
        return JSONResponse({"key": job.key})

    def progress(self, request: Request) -> Response:
        """How far a file of readings is."""
        try:
            return JSONResponse(self.uploads.find(request.path_params["key"]).state())
        except AgewiseError as error:
            return JSONResponse({"stage": "failed", "failure": str(error)})


def _fixed(content: str, kind: str) -> Answer:
    return lambda _: Response(content, media_type=kind)


def application(model: Model, uploads: Uploads) -> Starlette:
    """The explorer as an application."""
    explorer, static = Explorer(model, uploads), files("agewise.explore") / "static"
    css, script = ((static / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    scenario = explorer.file(SAVED, "application/toml", Model.scenario)
    plan = explorer.file("plan.json", "application/json", lambda m, one: m.plan(one).to_json())
    return Starlette(
        routes=[
            Route("/", explorer.start),
            Route("/style.css", _fixed(style(), "text/css")),
            Route("/page.css", _fixed(css, "text/css")),
            Route("/page.js", _fixed(script, "text/javascript")),
            Route("/view", explorer.part(page.view)),
            Route("/after", explorer.part(page.after)),
            Route("/statement", explorer.part(page.statement)),
            Route("/picture/{key}", explorer.picture),
            Route("/scenario.toml", scenario),
            Route("/plan.json", plan),
            Route("/report.html", explorer.report),
            Route("/readings", explorer.receive, methods=["POST"]),
            Route("/readings/{key}", explorer.progress),
        ],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
        ],
    )


def _query(given: Mapping[str, str]) -> dict[str, str]:
    """The query of a form in the words of choices: radio and tick become values."""
    query = dict(given)
    if query.pop("schedule", "age") == "planned":
        query["age"] = "planned"
    if query.pop("forever", ""):
        query["rounds"] = "forever"
    return query


def listen(port: int | None) -> socket.socket:
    """A socket on the loopback address; refuse a port that cannot be had.

    None: the usual port, or any other where somebody listens on that one already.
    """
    wanted = USUAL_PORT if port is None else port
    if not 0 <= wanted <= 65535:
        raise InvalidInput("--port", port, "0 to 65535", "0 takes any that is free.")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, wanted))
    except OSError as error:
        listening.close()
        if port is None and error.errno == errno.EADDRINUSE:
            return listen(0)
        why = "in use" if error.errno == errno.EADDRINUSE else str(error.strerror).lower()
        raise InvalidInput(
            "--port", f"{port} ({why})", "a port that is free", "0 takes any that is."
        ) from None
    listening.listen()
    return listening


def serve(scenario: str, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Answer until interrupted; `ready` is told the address once there is something to see."""
    model = Model(scenario)
    uploads = Uploads(model)
    url = f"http://{HOST}:{listening.getsockname()[1]}/"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready(url)

    config = uvicorn.Config(
        application(model, uploads),
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    try:
        Server(config).run(sockets=[listening])
    finally:
        uploads.close()
