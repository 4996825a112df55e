"""The base class of all settings, and small types they share.

Invariant: a settings object cannot hold a key that nobody reads or a value of another type than declared.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
)

NAME = r"^[a-z][A-Za-z0-9_-]*$"
"""Names of arms, rows and harvests: they become folder names and workflow wildcards."""

Name = Annotated[str, Field(pattern=NAME, max_length=40)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Levels = Annotated[list[Annotated[int, Field(ge=1, le=6)]], Field(min_length=1)]
Status = Literal["valid", "negative", "superseded", "diagnostic", "prepared"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Settings(BaseModel):
    """Settings: no unknown keys, no silent conversions; a field's docstring describes it in the schema."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values, defaults included."""
        return self.model_dump(mode="json")


class Sparse(Settings):
    """Settings of which only what was given counts, and only that is written."""

    @model_serializer(mode="wrap")
    def _given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}


class _Described(Sparse):
    """Its fields bring their descriptions: pydantic's search for docstrings, which would find none, costs 0.1 s."""

    model_config = ConfigDict(use_attribute_docstrings=False)


def partial(model: type[Settings], name: str) -> type[Sparse]:
    """A sparse model with the same fields: what an arm may override."""
    fields: dict[str, Any] = {}
    for key, field in model.model_fields.items():
        kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        default = Field(default=None, description=field.description, discriminator=field.discriminator)
        fields[key] = (kind | None, default)
    doc = f"Overrides of {model.__name__}: what is left out keeps the study's value."
    made: type[Sparse] = create_model(name, __base__=_Described, __doc__=doc, **fields)
    return made
