"""The elements of a form for a tool's arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from envport.errors import InvalidArguments
from envport.tools.schema import ToolSpec
from envport.web.forms import FormField, LeftEmpty, fields_of, problems_of, read_field
from envport.web.shown import heading, note, text

__all__ = ["ToolForm"]

_MOST_BUTTONS = 6


class ToolForm:
    """A form that calls a tool. A tool with one short choice has a button for each value.

    Args:
        tool: The tool.
        play: Called with the arguments, once they are valid.
    """

    def __init__(self, tool: ToolSpec, play: Callable[[dict[str, Any]], Awaitable[None]]):
        self._tool = tool
        self._play = play
        self._elements: list[tuple[FormField, ValidationElement[Any]]] = []

    def build(self) -> None:
        """Make the elements."""
        fields = fields_of(self._tool.input_schema)
        with ui.element("section").classes("ev-card ev-form").props(f"aria-label='{_quoted(self._tool.name)}'"):
            heading(self._tool.name, 3)
            if self._tool.description:
                note(self._tool.description)
            only = fields[0] if len(fields) == 1 else None
            if only is not None and only.kind == "choice" and only.required and len(only.choices) <= _MOST_BUTTONS:
                self._buttons(only)
                return
            for field in fields:
                self._elements.append((field, _element(field)))
            self._problem = text("", "p", "ev-alert").props("role=alert")
            self._problem.set_visibility(False)
            ui.button("Call", on_click=self._submit).props("outline no-caps").props(
                f"aria-label='Call {_quoted(self._tool.name)}'"
            )

    def _buttons(self, field: FormField) -> None:
        note(f"{field.name}: {field.hint}")
        with ui.element("div").classes("ev-row"):
            for choice in field.choices:
                ui.button(str(choice), on_click=self._choosing(field.name, choice)).props("outline no-caps")

    def _choosing(self, name: str, value: Any) -> Callable[[], Awaitable[None]]:
        async def choose() -> None:
            await self._play({name: value})

        return choose

    async def _submit(self) -> None:
        arguments: dict[str, Any] = {}
        wrong = False
        for field, element in self._elements:
            element.error = None
            try:
                arguments[field.name] = read_field(field, element.value)
            except LeftEmpty:
                continue
            except InvalidArguments as error:
                element.error = str(error)
                wrong = True
        problems = None if wrong else problems_of(self._tool.input_schema, arguments)
        self._problem.set_visibility(problems is not None)
        if problems is not None:
            self._problem.text = problems
        if not wrong and problems is None:
            await self._play(arguments)


def _element(field: FormField) -> ValidationElement[Any]:
    if field.kind in ("choice", "boolean"):
        said = {str(index): str(value) for index, value in enumerate(field.choices)}
        if field.kind == "boolean":
            said = {"true": "true", "false": "false"}
        made: Any = ui.select(said, label=field.label, clearable=not field.required)
    elif field.kind in ("string", "json"):
        made = ui.textarea(field.label).props("autogrow rows=1")
    else:
        made = ui.input(field.label).props(f"inputmode={'numeric' if field.kind == 'integer' else 'decimal'}")
    made.props("outlined dense")
    made._props["hint"] = field.hint
    return made


def _quoted(name: str) -> str:
    return "".join(character if character.isalnum() or character in "_-. " else " " for character in name)
