"""The web server. It listens on this machine only, and refuses requests that name another host."""

import contextlib
import logging
import socket
import sys
import webbrowser
from collections.abc import Iterator
from typing import Any

from solvable import models
from solvable.explorer.address import read_state

PORT = 5006
_HERE = ("127.0.0.1", "localhost")
# A page that was sent may take its time to connect, on a phone or a busy machine: without its session it would stay
# empty. A page that has connected and is closed later is noticed within a second: see `_end_when_closed`.
_SESSION = {"unused_session_lifetime_milliseconds": 60_000, "check_unused_sessions_milliseconds": 1000}
_LARGEST_MESSAGE = 12_000_000


def serve(
    model: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    warm_up: bool = True,
) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    model
        The model whose story, or form, is opened; None for the landing view.
    host
        Address to listen on.
    port
        Port to listen on; None for the first free one from 5006 on.
    browser
        Whether to open a browser.
    warm_up
        Whether to compile the programs of all models in the background, so that first curves come at once.
    """
    check_installed()
    port = _free_port(host, port)
    from solvable.explorer.workers import Workers

    workers = Workers()
    try:
        server = make_server(workers, model, host, port)
        address = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}/"
        workers.start()
        if warm_up:
            workers.warm_up(sorted(models.names(), key=lambda name: name != model))
        # Nobody may read the address: a closed pipe is no reason not to serve.
        with contextlib.suppress(OSError):
            print(f"solvable explorer: {address}", flush=True)
        print("stop it with Ctrl+C", file=sys.stderr)
        if host not in _HERE:
            print(f"note: everybody who can reach {host} can use this page; there is no password", file=sys.stderr)
        if browser and not _opened(address + _first_page(model)):
            print("no browser could be opened: open the address above yourself", file=sys.stderr)
        server.start()
        server.io_loop.start()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        workers.close()


def _first_page(model: str | None) -> str:
    """What is opened: the landing view, or the story of a model, or its form if it has no story."""
    if model is None:
        return ""
    return f"story/{model}" if models.get(model).controls.stories else f"?model={model}"


def make_server(workers: Any, model: str | None, host: str, port: int) -> Any:
    """Create the server without starting it."""
    import panel as pn

    from solvable.explorer.stories import add_stories

    # Messages about pages that were closed in the middle of something are no news.
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    logging.getLogger("tornado").setLevel(logging.ERROR)
    hosts = [f"{name}:{port}" for name in _names(host)]

    def page() -> Any:
        from solvable.explorer.page import make_page, warn_when_lost
        from solvable.explorer.view import View

        document: Any = pn.state.curdoc
        pairs = [
            (key, values[-1].decode("utf-8", "replace")) for key, values in pn.state.session_args.items() if values
        ]
        state, errors = read_state(pairs, model)
        view = View(state, errors, workers, _later(document), lambda: _held(document))
        pn.state.on_session_destroyed(lambda context: view.close())

        # Not when the page is served but when the browser has it: what changes in between may get lost.
        def begin(event: Any) -> None:
            _end_when_closed(server, document)
            view.begin()

        document.on_event("document_ready", begin)
        warn_when_lost(document)
        return make_page(view)

    server = pn.serve(
        {"/": page},
        port=port,
        address=host,
        websocket_origin=hosts,
        show=False,
        start=False,
        verbose=False,
        location=False,
        title="solvable explorer",
        websocket_max_message_size=_LARGEST_MESSAGE,
        **_SESSION,
    )
    add_stories(server, workers)
    _refuse_foreign_hosts(server, set(hosts))
    return server


def _names(host: str) -> list[str]:
    """Host names that requests may use: those of the loopback, and of this machine if it listens to others."""
    if host in _HERE:
        return list(_HERE)
    if host != "0.0.0.0":
        return [host, *_HERE]
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        found = {str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)}
        return list(dict.fromkeys([*_HERE, name, socket.getfqdn(), *sorted(found)]))
    return [*_HERE, name]


def _later(document: Any) -> Any:
    """Schedule a function on the thread of the page, unless the page has been closed."""

    def later(action: Any) -> None:
        if document.session_context is not None and not document.session_context.destroyed:
            # Bokeh refuses if the page is closed just now; the thread that asks is a worker's and must go on.
            with contextlib.suppress(RuntimeError):
                document.add_next_tick_callback(action)

    return later


def _end_when_closed(server: Any, document: Any) -> None:
    """Let the session of a page that is connected end as soon as the connection does, and its work with it."""
    server.get_session("/", document.session_context.id).request_expiration()


@contextlib.contextmanager
def _held(document: Any) -> Iterator[None]:
    """Collect changes and send them in order at the end; nested holds send at the end of the outermost one."""
    if document.callbacks.hold_value is not None:
        yield
        return
    document.hold("collect")
    try:
        yield
    finally:
        document.unhold()


def _refuse_foreign_hosts(server: Any, hosts: set[str]) -> None:
    """Refuse requests with a foreign Host header, which protects against DNS rebinding."""
    from tornado.routing import Matcher, Rule
    from tornado.web import RequestHandler

    class Foreign(Matcher):
        def match(self, request: Any) -> dict[str, Any] | None:
            return None if request.host in hosts else {}

    class Refuse(RequestHandler):
        def prepare(self) -> None:
            self.set_status(403)
            self.finish("this server answers only to its own address\n")

    router = server._tornado.default_router
    router.rules.insert(0, router.process_rule(Rule(Foreign(), Refuse)))


def check_installed() -> None:
    try:
        import panel  # noqa: F401
    except ImportError as error:
        raise ImportError("the explorer needs Panel: pip install 'solvable[explore]'") from error


def _free_port(host: str, port: int | None) -> int:
    """The given port if it is free, otherwise a ValueError; without one, 5006 or one of the next ten."""
    wanted = [port] if port is not None else list(range(PORT, PORT + 11))
    for one in wanted:
        if not 0 < one < 65536:
            raise ValueError(f"--port must lie between 1 and 65535, not {one}")
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, one))
            return one
        except OverflowError as error:
            raise ValueError(f"--port must lie between 1 and 65535, not {one}") from error
        except socket.gaierror as error:
            raise ValueError(f"--host {host!r} is not an address of this machine: try 127.0.0.1") from error
        except OSError as error:
            if error.errno not in (98, 48, 10048):
                raise ValueError(f"cannot listen on {host}:{one}: {error.strerror}") from error
    said = f"port {port} is" if port is not None else f"ports {PORT} to {PORT + 10} are"
    raise ValueError(f"{said} in use: is an explorer running already? choose another with --port")


def _opened(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
