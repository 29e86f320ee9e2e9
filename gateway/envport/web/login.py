"""The login of the page: plain HTML without scripts."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from envport.access import Access
from envport.errors import PermissionDenied, Unauthenticated
from envport.web.viewer import Credentials

__all__ = ["LOGIN", "LOGOUT", "SESSION_SECONDS", "cookie_name", "logged_in", "logged_out", "login_page"]

LOGIN = "/ui/login"
"""Where the form of the login is sent."""

LOGOUT = "/ui/logout"
"""A POST there ends the session in this browser."""

SESSION_SECONDS = 12 * 3600.0
"""How long a login is valid."""

_LONGEST_FORM = 8_192
_STYLE = """
:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:26rem;margin:12vh auto;padding:0 1rem}
input,button{font:inherit;box-sizing:border-box;width:100%;padding:.6rem .7rem;margin:.3rem 0 1rem;border-radius:.3rem}
input{border:1px solid GrayText}
button{border:0;background:#3451b2;color:#fff;cursor:pointer}
[role=alert]{border-left:.25rem solid #d33;padding-left:.7rem}
"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def cookie_name(access: Access) -> str:
    """Name of the session's cookie. Browsers send it to all ports of a host, where other gateways may be."""
    return f"envport_{access.name_of('cookie of the page')}"


def login_page(problem: str | None = None, status: int = 401) -> Response:
    """The form that asks for a token.

    Args:
        problem: What was wrong with the token that was given.
        status: The HTTP status.
    """
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>envport: log in</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main><h1>envport</h1>"
        "<p>This gateway needs a token. With the scope <code>read</code>, you see your episodes and their rewards. To "
        "play, the token needs <code>play</code> or <code>control</code>.</p>"
        f'{alert}<form method="post" action="{LOGIN}"><label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
        "<button>Log in</button></form></main></body></html>",
        status,
        _HEADERS | ({"WWW-Authenticate": "Bearer"} if status == 401 else {}),
    )


async def logged_in(request: Request, access: Access, *, secure: bool) -> Response:
    """Answer the form: set the session's cookie, or say what is wrong.

    Args:
        request: The request.
        access: The tokens.
        secure: Whether clients reach the gateway over HTTPS only.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_FORM:
            return login_page("That is too long for a token.", 413)
    token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0].strip()
    try:
        session = access.session(token, SESSION_SECONDS)
        Credentials(session=session).principal(access)
    except Unauthenticated:
        return login_page("This token is not valid here.")
    except PermissionDenied:
        return login_page("This token has none of the scopes read, play and control.", 403)
    answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    # Without an age, browsers forget it when they are closed.
    answer.set_cookie(cookie_name(access), session, httponly=True, samesite="strict", secure=secure)
    return answer


def logged_out(access: Access) -> Response:
    """End the session in this browser."""
    answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    answer.delete_cookie(cookie_name(access), httponly=True, samesite="strict")
    return answer
