"""A picture completed by a model that knows it must come back; what is not masked must never change."""

import errno
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from crate_mae import UserError, atomic_write
from crate_mae.completion.inpaint import (
    Complete,
    completed_region,
    continue_picture,
    inpaint,
    model_view,
    paste,
    shrink,
)
from crate_mae.completion.mask_regions import region_by_rectangle
from crate_mae.completion.patches import Plan, Tile, bounds
from crate_mae.completion.photo import Photo, read_photo, write_photo
from crate_mae.completion.random_cells import plan_random
from crate_mae.completion.tiles import plan_region
from tests.conftest import MAKES, small_model

MIDDLE = (0.3, 0.3, 0.6, 0.6)


def smooth(height: int, width: int) -> Image.Image:
    """Waves that are longer than any pixel of a model."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = [np.sin(2 * x + y), np.cos(3 * y), np.sin(2 * x * y + 1)]
    return Image.fromarray((127 + 100 * np.stack(waves, -1)).astype(np.uint8))


def plan_middle(photo: Photo, image: tuple[int, int] = (64, 64), grid: tuple[int, int] = (8, 8)) -> Plan:
    return plan_region(region_by_rectangle(MIDDLE, photo.size), image, grid)


def knowing(photo: Photo, plan: Plan, size: tuple[int, int]) -> Complete:
    """A perfect model: it gives every tile back as it is in the original, the tiles in their order."""
    nothing = np.zeros_like(plan.region)
    tiles = iter(plan.tiles)

    def complete(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        crops = [shrink(model_view(photo, 3), nothing, next(tiles), size) for _ in images]
        return torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2)

    return complete


@pytest.mark.parametrize("size", [(300, 450), (450, 300), (61, 47), (90, 1000)])
@pytest.mark.parametrize("kind", ["middle", "band", "random", "hatched"])
def test_a_perfect_model_gives_the_picture_back(size: tuple[int, int], kind: str) -> None:
    photo = read_photo(smooth(*size))
    if kind == "random":
        plan = plan_random(size, (64, 64), (8, 8), 0.75, torch.Generator().manual_seed(0))
    elif kind == "hatched":
        plan = hatched(size)
    else:
        rectangle = MIDDLE if kind == "middle" else (0.1, 0.45, 0.9, 0.55)
        plan = plan_region(region_by_rectangle(rectangle, size), (64, 64), (8, 8))
    fill = completed_region(model_view(photo, 3), plan, knowing(photo, plan, (64, 64)), (64, 64))
    after = paste(photo, plan.region, fill).pixels
    assert (after[~plan.region] == photo.pixels[~plan.region]).all()
    assert np.abs(after.astype(int) - photo.pixels).max() <= 4


def test_at_the_models_own_scale_nothing_is_resampled() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    photo = read_photo(Image.fromarray(noise))
    region = np.zeros((200, 300), dtype=bool)
    region[100:116, 50:66] = True
    plan = plan_region(region, (64, 64), (8, 8))
    assert plan.tiles == [Tile(76, 26, 64, 64)]
    fill = completed_region(model_view(photo, 3), plan, knowing(photo, plan, (64, 64)), (64, 64))
    assert (paste(photo, plan.region, fill).pixels == noise).all()


def test_nothing_of_the_region_reaches_the_completion() -> None:
    """The same picture with other contents in the region is completed the same, bit for bit."""
    photo, model = read_photo(smooth(200, 300)), small_model("crate_mae_tiny")
    plan = plan_middle(photo, model.config.image_size, model.config.grid)
    other = photo.pixels.copy()
    other[plan.region] = 255 - other[plan.region]
    one, two = (inpaint(Photo(pixels, None, None), plan, model).photo.pixels for pixels in (photo.pixels, other))
    assert (one == two).all()


def test_what_is_masked_is_what_the_plan_says() -> None:
    photo = read_photo(smooth(200, 300))
    plan = plan_middle(photo)
    given: list[torch.Tensor] = []

    def watch(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        given.append(masks)
        return images

    completed_region(model_view(photo, 3), plan, watch, (64, 64))
    assert (torch.cat(given).numpy() == plan.masks).all()


def hatched(size: tuple[int, int]) -> Plan:
    region = np.zeros(size, dtype=bool)
    region[::6] = True
    return plan_region(region, (64, 64), (8, 8))


def test_the_model_predicts_every_pixel_of_a_hatched_region() -> None:
    """A model that gives only its masked patches a colour gives it to the whole region."""
    photo = read_photo(smooth(100, 150))
    plan = hatched(photo.size)

    def paint(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        masked = masks.reshape(-1, 1, 8, 8).repeat_interleave(8, 2).repeat_interleave(8, 3)
        return masked.float().expand(-1, 3, -1, -1)

    painted = completed_region(model_view(photo, 3), plan, paint, (64, 64))
    rows, columns = (slice(*side) for side in bounds(plan.region))
    inside = painted[plan.region[rows, columns]]
    assert inside.min() > 0.4  # resampling mixes neighbouring patches at their border
    assert inside.mean() > 0.9


def test_visible_patches_show_a_thin_region_as_its_surroundings() -> None:
    """Not as lines of the tile's mean colour, and with nothing of the region's own content."""
    photo = read_photo(smooth(100, 150))
    plan, view = hatched(photo.size), model_view(photo, 3)
    continued = continue_picture(np.where(plan.region[..., None], 1, view), plan.region)
    assert (continued[~plan.region] == view[~plan.region]).all()
    assert np.abs(continued - view).max() < 0.05


@pytest.mark.parametrize("make", MAKES)
def test_every_make_of_model_completes_a_photograph_and_leaves_the_rest(make: str) -> None:
    photo = read_photo(Image.fromarray(load_sample_image("china.jpg")[::4, ::4]))
    model = MAKES[make]()
    plan = plan_middle(photo, model.config.image_size, model.config.grid)
    filled = inpaint(photo, plan, model)
    assert (filled.photo.pixels[~plan.region] == photo.pixels[~plan.region]).all()
    assert (filled.photo.pixels[plan.region] != photo.pixels[plan.region]).mean() > 0.5
    assert 0 < filled.error < 100


# --- kinds of pictures ---


def kinds() -> dict[str, Image.Image]:
    colour = smooth(48, 64)
    gray = colour.convert("L")
    clear = Image.linear_gradient("L").resize((64, 48))
    wide = (np.asarray(gray).astype(np.uint16) * 257) + 3
    return {
        "RGB": colour,
        "L": gray,
        "RGBA": Image.merge("RGBA", [*colour.split(), clear]),
        "LA": Image.merge("LA", [gray, clear]),
        "I;16": Image.fromarray(wide),
    }


@pytest.mark.parametrize("mode", kinds())
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_png_keeps_its_mode_and_its_other_pixels_bit_for_bit(mode: str, channels: int, tmp_path: Path) -> None:
    kinds()[mode].save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png")
    model = small_model("crate_mae_tiny", channels=channels, mean=(0.5,) * channels, std=(0.5,) * channels)
    plan = plan_middle(photo, model.config.image_size, model.config.grid)
    write_photo(inpaint(photo, plan, model).photo, tmp_path / "b.png")
    with Image.open(tmp_path / "a.png") as before, Image.open(tmp_path / "b.png") as after:
        assert (after.mode, after.size) == (before.mode, before.size)
        old, new = np.asarray(before), np.asarray(after)
        assert (old[~plan.region] == new[~plan.region]).all()
        assert (old[plan.region] != new[plan.region]).any()
        if mode == "I;16":
            assert new.max() > 255
        if mode.endswith("A") and channels < 4:  # what was completed can be seen
            assert new[24, 30, -1] == 255


def test_other_kinds_become_rgb_or_gray(tmp_path: Path) -> None:
    colour = smooth(48, 64)
    cases = {
        "CMYK.jpg": (colour.convert("CMYK"), 3),
        "P.png": (colour.quantize(20), 3),
        "1.png": (colour.convert("1"), 1),
        "F.tif": (colour.convert("F"), 1),
        "I.tif": (Image.fromarray(np.arange(48 * 64, dtype=np.int32).reshape(48, 64) * 1000), 1),
    }
    for name, (image, bands) in cases.items():
        image.save(tmp_path / name)
        photo = read_photo(tmp_path / name)
        assert photo.pixels.shape == (48, 64, bands), name
        assert photo.pixels.dtype == np.uint8, name
        assert photo.pixels.std() > 10, name
    transparent = colour.quantize(20)
    transparent.info["transparency"] = 3
    assert read_photo(transparent).pixels.shape == (48, 64, 4)


def test_a_photo_is_written_upright_with_its_profile_and_its_other_metadata(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"  # lies on its side; the maker
    smooth(48, 64).save(tmp_path / "a.jpg", exif=exif, icc_profile=b"a profile")
    photo = read_photo(tmp_path / "a.jpg")
    assert photo.size == (64, 48)
    for name in ("b.jpg", "b.png"):
        write_photo(photo, tmp_path / name)
        with Image.open(tmp_path / name) as written:
            assert written.size == (48, 64)
            assert written.info["icc_profile"] == b"a profile"
            assert dict(written.getexif()) == {0x010F: "a camera"}
    smooth(48, 64).convert("CMYK").save(tmp_path / "c.jpg", icc_profile=b"for ink")
    assert read_photo(tmp_path / "c.jpg").profile is None


def test_damaged_metadata_is_left_out(tmp_path: Path) -> None:
    smooth(48, 64).save(tmp_path / "a.png", exif=b"Exif\0\0 no TIFF header")
    photo = read_photo(tmp_path / "a.png")
    assert photo.exif is None
    write_photo(photo, tmp_path / "b.png")


def test_metadata_that_no_jpeg_can_hold_is_left_out_with_a_note(tmp_path: Path) -> None:
    photo = replace(read_photo(smooth(48, 64)), exif=b"Exif\0\0" + bytes(70_000))
    with pytest.warns(UserWarning, match=r"a.jpg is written without its EXIF data"):
        write_photo(photo, tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as written:
        assert written.size == (64, 48)


@pytest.mark.parametrize("mode", kinds())
def test_a_jpeg_has_eight_bits_and_no_opacity(mode: str, tmp_path: Path) -> None:
    write_photo(read_photo(kinds()[mode]), tmp_path / "a.JPG")
    with Image.open(tmp_path / "a.JPG") as written:
        assert written.format == "JPEG"
        assert written.mode == ("RGB" if mode.startswith("RGB") else "L")


def test_a_model_of_two_channels_takes_no_picture() -> None:
    with pytest.raises(UserError, match="2 channels"):
        model_view(read_photo(smooth(10, 10)), 2)


def test_a_disk_that_is_full_leaves_the_photo_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    write_photo(read_photo(kinds()["RGB"]), path)
    before = path.read_bytes()

    def cut(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(atomic_write, "commit", cut)
    with pytest.raises(OSError, match="no space"):
        write_photo(read_photo(kinds()["L"]), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
