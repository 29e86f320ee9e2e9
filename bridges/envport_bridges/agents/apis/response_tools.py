"""The tools of OpenAI's responses, some of which are no functions, and how calls of them are told from each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from envport_bridges.agents.apis.reading import function_tool, hosted_tool, list_of, object_of, text_of
from envport_bridges.agents.apis.requests import WrittenCall
from envport_bridges.agents.apis.wire import encoded_text

__all__ = ["CalledFunction", "ResponseTools", "shown_name"]

_FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as free text."}},
    "required": ["input"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class CalledFunction:
    """A tool as the client knows it.

    Attributes:
        name: Its name.
        namespace: The group that it is in, such as an MCP server.
        kind: Whether it takes arguments (`function`) or free text (`custom`).
    """

    name: str
    namespace: str | None = None
    kind: Literal["function", "custom"] = "function"

    def item(self, call: WrittenCall) -> dict[str, Any]:
        """What a call of it is in the answer, without the ids."""
        of = {"namespace": self.namespace} if self.namespace is not None else {}
        if self.kind == "custom":
            text = call.arguments.get("input")
            written = text if isinstance(text, str) else encoded_text(call.arguments)
            return {"type": "custom_tool_call", "name": self.name, **of, "input": written}
        return {"type": "function_call", "name": self.name, **of, "arguments": encoded_text(call.arguments)}


@dataclass
class ResponseTools:
    """The tools of a request.

    Attributes:
        shown: Those that the model is shown, as chat templates take them. One of a namespace has both names, a tool for
            free text has one argument.
        called: What the client calls those of them that are not plain functions, by the names that the model knows.
        ignored: The others, which OpenAI's servers would run.
    """

    shown: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    called: dict[str, CalledFunction] = field(default_factory=dict[str, CalledFunction])
    ignored: list[str] = field(default_factory=list[str])

    @classmethod
    def read(cls, given: Any) -> ResponseTools:
        """Read `tools` of a request.

        Raises:
            RequestRefused: A tool is not valid.
        """
        tools = cls()
        tools._add_all(given, "tools", None)
        return tools

    def _add_all(self, given: Any, where: str, namespace: str | None) -> None:
        for index, listed in enumerate(list_of(given or [], where)):
            place = f"{where}[{index}]"
            tool = object_of(listed, place)
            kind = tool.get("type")
            if kind == "namespace" and namespace is None:
                self._add_namespace(tool, place)
            elif kind in ("function", "custom"):
                self._add(tool, kind, place, namespace)
            else:
                self._ignore(hosted_tool(kind))

    def _add_namespace(self, tool: Mapping[str, Any], where: str) -> None:
        first = len(self.shown)
        self._add_all(tool.get("tools"), f"{where}.tools", text_of(tool.get("name"), f"{where}.name"))
        if tool.get("description") and len(self.shown) > first:
            # The instructions of an MCP server, for example. There is no other place for them.
            function = self.shown[first]["function"]
            about = text_of(tool["description"], f"{where}.description")
            function["description"] = "\n\n".join(filter(None, (about, function["description"])))

    def _add(self, tool: Mapping[str, Any], kind: Literal["function", "custom"], where: str, group: str | None) -> None:
        name = shown_name(text_of(tool.get("name"), f"{where}.name"), group)
        custom = kind == "custom"
        parameters = _FREE_TEXT if custom else tool.get("parameters")
        told = function_tool(name, tool.get("description"), parameters, where)
        if custom:
            told["function"]["description"] += _grammar(tool, where)
        if tool.get("strict"):
            self._ignore("tools.strict")
        self.shown.append(told)
        if custom or group is not None:
            self.called[name] = CalledFunction(tool["name"], group, kind)

    def _ignore(self, name: str) -> None:
        if name not in self.ignored:
            self.ignored.append(name)


def shown_name(name: str, namespace: Any) -> str:
    """What the model calls a tool."""
    return f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name


def _grammar(tool: Mapping[str, Any], where: str) -> str:
    """The grammar of free text, in words for the model. It is not enforced."""
    given = tool.get("format")
    form = {} if given is None else object_of(given, f"{where}.format")
    if form.get("type") != "grammar":
        return ""
    definition = text_of(form.get("definition"), f"{where}.format.definition")
    return f"\n\nThe input follows this grammar ({form.get('syntax')}):\n{definition}"
