"""The answer at `/`: what is served here, and how to go on. A page for browsers, JSON for others."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterable
from html import escape

from starlette.responses import HTMLResponse, JSONResponse, Response

from envport.client.addresses import environment_path, mcp_address
from envport.client.attaching import TOKEN_VARIABLE, claude_code
from envport.definition import EnvironmentDefinition
from envport.errors import PermissionDenied, Unauthenticated
from envport.http.problems import problem

__all__ = ["WELCOME", "refused", "wants_page", "welcome"]

WELCOME = "/"
"""The path of the answer."""

_STYLE = "body{font:1rem/1.5 sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}pre{overflow-x:auto}"
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The answer depends on the token, and on the name by which the gateway is called.
    "Cache-Control": "no-store",
    "Vary": "Accept",
}


def wants_page(accept: str) -> bool:
    """Whether an `Accept` header asks for HTML by name, as that of browsers does."""
    for offer in accept.lower().split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        if media == "text/html":
            return not any(it.startswith("q=") and not it[2:].strip("0.") for it in parameters)
    return False


def welcome(
    accept: str, url: str, version: str, environments: Iterable[EnvironmentDefinition], *, with_token: bool
) -> Response:
    """The answer to a client that may see the environments.

    Args:
        accept: The request's `Accept` header.
        url: Address of the gateway.
        version: Version of envport.
        environments: What is served.
        with_token: Whether players need a token.
    """
    token = TOKEN_VARIABLE if with_token else None
    served = [
        {
            "name": spec.name,
            "description": spec.description,
            "mcp_url": (address := mcp_address(url, environment_path(spec.name))),
            "attach": shlex.join(claude_code(spec.name, address, token)),
        }
        for spec in environments
    ]
    links = {"docs": f"{url}/docs", "openapi": f"{url}/openapi.json", "environments": f"{url}/environments"}
    if not wants_page(accept):
        return JSONResponse(
            {"name": "envport", "version": version, "environments": served, "links": links}, headers=_HEADERS
        )
    lines = [
        f"<p>This is <b>envport {escape(version)}</b>, a gateway for tool environments. To play one, attach an MCP "
        "client to its address, and ask it to play.</p>",
        *(["<p>The client needs a token; it takes it from the variable <code>ENVPORT_TOKEN</code>.</p>"] * with_token),
    ]
    for it in served:
        lines.append(f"<h2>{escape(it['name'])}</h2>")
        lines.extend(f"<p>{escape(part)}</p>" for part in it["description"].split("\n\n") if part)
        lines.append(f"<p>Any MCP client (Streamable HTTP):</p><pre>{escape(it['mcp_url'])}</pre>")
        lines.append(f"<p>Claude Code:</p><pre>{escape(it['attach'])}</pre>")
    lines.append("<h2>For programs</h2><ul>")
    for what, key in (("Control plane (OpenAPI)", "docs"), ("Environments, with their tools", "environments")):
        lines.append(f'<li>{what}: <a href="{escape(links[key])}">{escape(links[key])}</a></li>')
    lines.append("</ul>")
    lines.append(
        "<p>This is the plain page. To play here and to look at episodes, install the extra <code>ui</code> "
        "(<code>pip install 'envport[ui]'</code>) and start the gateway with <code>envport serve --ui</code>.</p>"
    )
    return _page(lines, 200, {})


def refused(error: Unauthenticated | PermissionDenied, accept: str) -> Response:
    """The answer to a client that may not see the environments: it says where a token goes."""
    answer = problem(error)
    if not wants_page(accept):
        return answer
    lines = [
        f"<p>This is <b>envport</b>, a gateway for tool environments: {escape(str(error))}.</p>",
        "<p>Whoever runs the gateway gives tokens. A program sends its token with each request, in the header</p>",
        "<pre>Authorization: Bearer TOKEN</pre>",
        "<p>The command <code>envport</code> and its Python client take it from the variable "
        "<code>ENVPORT_TOKEN</code>. Claude Code does so with</p>",
        f"<pre>{escape(shlex.join(claude_code('NAME', 'URL/environments/NAME/mcp', TOKEN_VARIABLE)))}</pre>",
    ]
    return _page(lines, answer.status_code, {"WWW-Authenticate": answer.headers["WWW-Authenticate"]})


def _page(lines: Iterable[str], status: int, headers: dict[str, str]) -> HTMLResponse:
    body = "\n".join(lines)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>envport</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
    return HTMLResponse(page, status, _HEADERS | headers)
