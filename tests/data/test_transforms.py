"""Augmentation against torchvision's, its determinism, and every kind of picture."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from crate_mae import UserError, image_tensors
from crate_mae.data import jpeg, transforms
from crate_mae.data.folders import Folder
from crate_mae.data.transforms import Augmentation, Evaluation, crop_box, resized_crop, sample_generator
from crate_mae.torchvision_fix import torchvision
from tests.conftest import small_model
from tests.data.conftest import picture, write

PLAIN = ((0.0,) * 3, (1.0,) * 3)


def test_evaluation_is_the_models_preprocess(tmp_path: Path) -> None:
    model = small_model("crate_mae_tiny", mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    path = write(tmp_path / "a.png", 1, (37, 23))
    config = model.config
    transform = Evaluation(config.image_size, config.channels, config.mean, config.std)
    pixels = transform(path, sample_generator(0))
    mean, std = image_tensors.statistics(config.mean, config.std, torch.zeros(()))
    for found in (transform.normalised([pixels])[0], model.preprocess(path)):
        torch.testing.assert_close(found, (pixels / 255 - mean) / std, atol=0, rtol=0)


def test_the_crop_is_drawn_as_torchvision_draws_it() -> None:
    """The distributions of area and aspect, for a picture where some draws don't fit and one where none does."""
    generator = torch.Generator().manual_seed(0)
    for width, height in [(100, 75), (400, 20)]:
        draws = torch.rand(3000, 22, generator=generator, dtype=torch.float64).tolist()
        own = np.array([crop_box((width, height), (0.08, 1.0), draw) for draw in draws])
        canvas = torch.empty(3, height, width)
        get = torchvision.transforms.RandomResizedCrop.get_params
        theirs = np.array([get(canvas, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(3000)])
        left, top, right, bottom = own.T
        assert (left >= 0).all()
        assert (top >= 0).all()
        assert (right <= width).all()
        assert (bottom <= height).all()
        size = np.stack([bottom - top, right - left], 1)
        np.testing.assert_allclose(size.mean(0), theirs[:, 2:].mean(0), rtol=0.03)
        np.testing.assert_allclose(size.std(0), theirs[:, 2:].std(0), rtol=0.06, atol=0.3)
        np.testing.assert_allclose([top.mean(), left.mean()], theirs[:, :2].mean(0), rtol=0.12, atol=0.2)


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (2, 3)])
def test_a_crop_of_the_smallest_pictures(size: tuple[int, int]) -> None:
    for seed in range(50):
        draws = torch.rand(22, generator=sample_generator(seed), dtype=torch.float64).tolist()
        left, top, right, bottom = crop_box(size, (0.08, 1.0), draws)
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_resized_crop_is_torchvisions(channels: int) -> None:
    """Shrunk, enlarged, and one side each; torchvision crops and resizes by Pillow."""
    image = picture(0, (60, 40)).convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    for box in [(0, 0, 60, 40), (3, 5, 13, 15), (7, 0, 57, 9), (59, 39, 60, 40)]:
        left, top, right, bottom = box
        place = (top, left, bottom - top, right - left)
        expected = torchvision.transforms.functional.resized_crop(image, *place, (12, 24))
        found = resized_crop(image, box, (12, 24))
        assert (found.mode, found.size) == (expected.mode, expected.size)
        np.testing.assert_allclose(np.asarray(found, dtype=int), np.asarray(expected, dtype=int), atol=1)


def test_what_is_transparent_has_no_colour_to_mix_in() -> None:
    pixels = np.zeros((40, 60, 4), dtype=np.uint8)
    pixels[:, :30] = (255, 0, 0, 0)
    pixels[:, 30:] = (255, 255, 255, 255)
    found = np.asarray(resized_crop(Image.fromarray(pixels), (0, 0, 60, 40), (8, 7)))
    seen = found[..., 3] > 0
    assert seen.any()
    assert (found[seen][:, :3] >= 250).all()


def test_the_parts_of_the_augmentation() -> None:
    image = picture(0, (60, 40))
    for seed in range(40):
        draws = torch.rand(24, generator=sample_generator(seed), dtype=torch.float64).tolist()
        expected = resized_crop(image, crop_box((60, 40), (0.08, 1.0), draws[:-2]), (12, 24))
        if draws[-2] < 0.5:
            expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        transform = Augmentation((12, 24), 3, *PLAIN, randaugment=None)
        found = transform(image, sample_generator(seed))
        np.testing.assert_array_equal(found, np.asarray(expected).transpose(2, 0, 1))
        torch.manual_seed(int(draws[-1] * 2**32))
        expected = torchvision.transforms.RandAugment(2, 14)(expected)
        found = Augmentation((12, 24), 3, *PLAIN)(image, sample_generator(seed))
        np.testing.assert_array_equal(found, np.asarray(expected).transpose(2, 0, 1))


def test_half_are_flipped_and_none_where_that_is_off() -> None:
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[:, 4:] = 255
    image = Image.fromarray(image)
    for flip, low, high in [(True, 70, 130), (False, 0, 0)]:
        transform = Augmentation((8, 8), 3, *PLAIN, crop_area=(1.0, 1.0), flip=flip, randaugment=None)
        found = [transform(image, sample_generator(1, seed)) for seed in range(200)]
        assert low <= sum(bool(x[0, 0, 0] > x[0, 0, -1]) for x in found) <= high


def test_the_generator_decides_and_the_global_ones_stay() -> None:
    transform, image = Augmentation((16, 16), 3, *PLAIN), picture(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = [transform(image, sample_generator(0, 1, index)) for index in range(20)]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    torch.manual_seed(99)
    again = [transform(image, sample_generator(0, 1, index)) for index in range(20)]
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert len({x.numpy().tobytes() for x in first}) == 20
    other = transform(image, sample_generator(0, 2, 0))
    assert not torch.equal(first[0], other)


def test_the_generator_differs_in_each_number_and_their_order() -> None:
    keys = [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0), (0, 0, 0), (0, 10, 1), (0, 1, 10), (2**32, 0, 0)]
    assert len({torch.rand((), generator=sample_generator(*key)).item() for key in keys}) == len(keys)


def sizes_before_resizing(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    sizes: list[tuple[int, int]] = []
    monkeypatch.setattr(
        transforms, "resized_crop", lambda image, *place: (sizes.append(image.size), resized_crop(image, *place))[1]
    )
    return sizes


def test_a_large_jpeg_is_decoded_small_and_looks_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that lies on its side: the box is drawn upright."""
    y, x = np.mgrid[:900, :1200] / 1200
    smooth = np.stack([x, y, (x + y) / 2], -1) * 255
    image = Image.fromarray(smooth.astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", quality=95)
    image.save(tmp_path / "b.jpg", quality=95, exif=exif)
    source, transform = Folder(tmp_path, None), Augmentation((32, 48), 3, *PLAIN, randaugment=None)
    sizes = sizes_before_resizing(monkeypatch)
    for index in range(2):
        upright = source.read(index)
        for seed in range(10):
            sizes.clear()
            found = transform(source.encoded(index), sample_generator(seed))
            expected = transform(upright, sample_generator(seed))
            assert sizes[0][0] < sizes[1][0]
            assert (sizes[0][0] > sizes[0][1]) == (upright.width > upright.height)
            assert (found.int() - expected.int()).abs().max() <= 7


def test_a_long_jpeg_on_its_side_is_not_decoded_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "a.jpg"
    picture(0, (1280, 160)).save(path, exif=exif)  # upright 160 wide: a quarter would be 40
    sizes = sizes_before_resizing(monkeypatch)
    transform = Augmentation((32, 48), 3, *PLAIN, crop_area=(1.0, 1.0), randaugment=None)
    transform(path, sample_generator(0))
    assert sizes == [(80, 640)]


KINDS = {
    "gray": lambda: picture(0).convert("L"),
    "CMYK": lambda: picture(0).convert("CMYK"),
    "16-bit": lambda: Image.fromarray(np.arange(320, dtype=np.uint16).reshape(16, 20) * 200),
    "1 pixel": lambda: picture(0, (1, 1)),
    "palette": lambda: picture(0).convert("P"),
    "alpha": lambda: picture(0).convert("RGBA"),
    "1 bit": lambda: picture(0).convert("1"),
    "animated": lambda: picture(0).convert("P"),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_picture_is_augmented(kind: str, channels: int, tmp_path: Path) -> None:
    more = {"save_all": True, "append_images": [picture(1).convert("P")]} if kind == "animated" else {}
    suffix = {"CMYK": "jpg", "animated": "gif"}.get(kind, "png")
    KINDS[kind]().save(tmp_path / f"a.{suffix}", **more)
    for seed in range(15):
        transform = Augmentation((8, 12), channels, (0.0,) * channels, (1.0,) * channels)
        pixels = transform(tmp_path / f"a.{suffix}", sample_generator(seed))
        assert (pixels.shape, pixels.dtype) == ((channels, 8, 12), torch.uint8)


def upright_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 1
    return exif


SAVED: dict[str, dict[str, Any]] = {
    "4:2:0": {},
    "4:4:4": {"subsampling": 0},
    "progressive": {"progressive": True},
    "upright by EXIF": {"exif": upright_exif()},
    "of the model's size": {"size": (48, 32)},
    "large, sometimes decoded at a half": {"size": (150, 110)},
}


@pytest.mark.parametrize("kind", SAVED)
def test_a_jpeg_has_the_same_pixels_with_the_extra_and_without(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(SAVED[kind])
    picture(0, options.pop("size", (90, 61))).save(tmp_path / "a.jpg", **options)
    source, transform = Folder(tmp_path, None), Augmentation((32, 48), 3, *PLAIN)
    decoded: list[tuple[int, ...]] = []
    whole = jpeg.ColourJpeg.pixels

    def noted(file: jpeg.ColourJpeg) -> torch.Tensor | None:
        decoded.append(file.size)
        return whole(file)

    monkeypatch.setattr(jpeg.ColourJpeg, "pixels", noted)
    with_it = [transform(source.encoded(0), sample_generator(seed)) for seed in range(20)]
    assert 0 < len(decoded) <= 20
    monkeypatch.setattr(jpeg, "_simplejpeg", lambda: None)
    for seed, found in enumerate(with_it):
        torch.testing.assert_close(transform(source.encoded(0), sample_generator(seed)), found, rtol=0, atol=0)


def test_only_an_upright_colour_jpeg_is_decoded_directly(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(0).save(tmp_path / "a.jpg", exif=exif)
    picture(0).convert("L").save(tmp_path / "b.jpg")
    picture(0).convert("CMYK").save(tmp_path / "c.jpg")
    picture(0).save(tmp_path / "d.png")
    (tmp_path / "e.jpg").write_bytes(b"\xff\xd8\xff and nothing more")
    picture(0).save(tmp_path / "f.jpg")
    source = Folder(tmp_path, None)
    assert [jpeg.ColourJpeg.of(source.encoded(index)) is not None for index in range(6)] == [False] * 5 + [True]
    content = (tmp_path / "f.jpg").read_bytes()
    assert jpeg.ColourJpeg(content[:-40], picture(0).size).pixels() is None


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings, word in [
        ({"crop_area": (0.0, 1.0)}, "crop_area"),
        ({"crop_area": (0.9, 0.5)}, "crop_area"),
        ({"randaugment": (2, 31)}, "randaugment"),
        ({"randaugment": (0, 3)}, "randaugment"),
        ({"channels": 4}, "RandAugment"),
    ]:
        with pytest.raises(UserError, match=word):
            Augmentation(**({"size": (8, 8), "channels": 3, "mean": PLAIN[0], "std": PLAIN[1]} | settings))


def test_a_truncated_file_is_a_user_error(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    picture(0, (100, 100)).save(buffer, "jpeg")
    (tmp_path / "cut.jpg").write_bytes(buffer.getvalue()[:2000])
    with pytest.raises(UserError, match=r"cut\.jpg can't be read"):
        Augmentation((8, 8), 3, *PLAIN)(Folder(tmp_path, None).encoded(0), sample_generator(0))
