"""One mechanism for all settings: kinds, bounds, marks, and files of earlier format versions."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pytest

from crate_mae import UserError
from crate_mae.settings import FORMAT_VERSION, ONE_FOR_BOTH, FieldsOf, Range, Settings, Since


@dataclass(frozen=True)
class Lens(Settings):
    subject: ClassVar[str] = "a lens"

    focus: Annotated[float, Range(above=0)] = 1.0
    glass: Annotated[Literal["crown", "flint"], Since(2, before="flint")] = "crown"

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        if version < 2 and "distance" in values:
            values["focus"] = values.pop("distance")
        return values


@dataclass(frozen=True)
class Camera(Settings):
    subject: ClassVar[str] = "a camera"

    name: Annotated[str, "shown"]
    lens: Annotated[dict[str, Any], FieldsOf(Lens)] = field(default_factory=dict)
    size: Annotated[tuple[int, int] | None, ONE_FOR_BOTH, Range(least=1)] = None
    gains: Annotated[tuple[float, ...], Range(least=0, below=2)] = ()
    places: Annotated[dict[Literal["left", "right"], int], "shown", Range(least=1)] = field(default_factory=dict)


def test_values_take_the_form_of_their_type() -> None:
    camera = Camera("a", {"focus": 3}, 4, [1, 0.5], {"left": 2})  # type: ignore[arg-type]
    assert camera == Camera("a", {"focus": 3.0}, (4, 4), (1.0, 0.5), {"left": 2})
    assert type(camera.lens["focus"]) is float
    assert type(camera.gains[0]) is float
    assert Camera.from_dict(camera.to_dict()) == camera
    assert camera.to_dict()["size"] == [4, 4]
    assert Camera.marked("shown") == {"name", "places"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": 1}, "name is 1; choose a word."),
        (
            {"size": (1, 2, 3)},
            r"size is \(1, 2, 3\); choose two whole numbers from 1 up \(height, width\), or one for both",
        ),
        ({"size": True}, "size is True; choose two whole numbers"),
        ({"gains": [2.0]}, "choose several numbers from 0 to below 2"),
        ({"gains": [float("inf")]}, "choose finite numbers"),
        ({"gains": [10**400]}, "gains is .*; choose several numbers"),
        ({"gains": 10**5000}, "choose several numbers"),
        ({"places": {"left": 0}}, "choose a whole number from 1 up for each name"),
        ({"places": [1]}, "for each name, one of left, right"),
        ({"places": {"top": 1}}, "for each name, one of left, right"),
        ({"lens": {"focsu": 1}}, "a lens has no setting focsu; did you mean focus?"),
        ({"lens": {"focus": 0}}, "focus is 0; choose a number above 0"),
        ({"lens": 3}, "the settings of a lens are 3"),
    ],
)
def test_a_mistake_is_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Camera(**({"name": "a"} | values))
    assert len(str(caught.value)) < 200


def test_a_file_of_an_earlier_version_means_what_it_meant() -> None:
    old = Lens.from_dict({"distance": 2}, version=1)
    assert old == Lens(focus=2.0, glass="flint")  # not today's default
    with pytest.raises(UserError, match="a lens lacks glass"):
        Lens.from_dict({"focus": 2})
    with pytest.raises(UserError, match="a lens has no setting distance"):
        Lens.from_dict({"distance": 2, "glass": "crown"}, FORMAT_VERSION)
    stored = Camera("a").to_dict() | {"lens": {"distance": 2}}
    assert Camera.from_dict(stored, version=1).lens == {"focus": 2.0}
