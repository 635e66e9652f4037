import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

import crate_mae
from crate_mae import UserError, image_files, image_tensors
from tests.conftest import small_model


def gradient(mode: str) -> Image.Image:
    ramp = np.linspace(0, 255, 24 * 12).reshape(12, 24).astype(np.uint8)
    rgb = np.stack([ramp, ramp[::-1], ramp[:, ::-1]], -1)
    return Image.fromarray(rgb).convert(mode)


def lab() -> Image.Image:
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    return ImageCms.applyTransform(gradient("RGB"), ImageCms.buildTransform(*profiles, "RGB", "LAB"))


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("RGB", "png"),
        ("RGB", "jpg"),
        ("L", "png"),
        ("1", "png"),
        ("P", "png"),
        ("P", "gif"),
        ("LA", "png"),
        ("RGBA", "png"),
        ("RGBA", "webp"),
        ("CMYK", "jpg"),
        ("CMYK", "tiff"),
        ("I;16", "png"),
        ("I;16", "tiff"),
        ("I", "tiff"),
        ("F", "tiff"),
        ("YCbCr", "jpg"),
        ("LAB", "tiff"),
        ("HSV", None),
        ("PA", None),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_picture_works(mode: str, suffix: str | None, channels: int, tmp_path: Path) -> None:
    if mode == "I;16":
        picture = Image.fromarray((np.asarray(gradient("L")).astype(np.uint16)) * 257)
    else:
        picture = {"PA": lambda: gradient("LA").convert("PA"), "LAB": lab}.get(mode, lambda: gradient(mode))()
    source: Image.Image | Path = picture
    if suffix:
        source = tmp_path / f"picture.{suffix}"
        picture.save(source)
    model = small_model("crate_mae_tiny", channels=channels, mean=(0.4,) * channels, std=(0.3,) * channels)
    tensor = model.preprocess(source)
    assert tensor.shape == (channels, 12, 24)
    pixels = tensor * 0.3 + 0.4
    assert pixels.min() >= -1e-6
    assert pixels.max() <= 1 + 1e-6
    if mode in ("L", "I;16", "I", "F", "LA", "PA"):  # all of them the same gray picture
        expected = torch.from_numpy(np.array(gradient("L"))).float() / 255
        torch.testing.assert_close(pixels[0], expected, rtol=0, atol=2 / 255)


def test_sixteen_bits_are_scaled_whatever_the_brightest_pixel() -> None:
    dark = Image.fromarray(np.full((4, 4), 200, np.uint16))
    assert image_tensors.planes(dark, 1, (4, 4)).max() <= 1
    assert image_tensors.planes(Image.fromarray(np.full((4, 4), 65535, np.uint16)), 1, (4, 4)).min() == 255


def test_floats_up_to_one_are_scaled_by_one() -> None:
    ramp = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    for odd in (None, np.nan, np.inf, 1.0001):
        values = ramp.copy()
        if odd is not None:
            values[0, 0] = odd
        pixels = image_tensors.planes(Image.fromarray(values), 1, (3, 4))
        np.testing.assert_allclose(pixels[0, 1:] / 255, ramp[1:], atol=1 / 255)


def test_resizing_is_smooth() -> None:
    board = Image.fromarray((np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8))
    pixels = image_tensors.planes(board, 1, (8, 8))
    assert (pixels / 255 - 0.5).abs().max() < 0.1  # nearest would be all black or all white


def test_what_is_transparent_is_white() -> None:
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert (image_tensors.planes(clear, 3, (4, 4)) == 255).all()
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([255, 0, 0] + [0, 0, 0] * 255)
    palette.info["transparency"] = 0
    assert (image_tensors.planes(palette, 3, (4, 4)) == 255).all()


def test_pictures_are_upright(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 4))
    picture.putpixel((0, 0), (255, 255, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    picture.save(tmp_path / "turned.png", exif=exif)
    assert image_files.read(tmp_path / "turned.png").size == (4, 8)
    with Image.open(tmp_path / "turned.png") as opened:
        assert image_files.read(opened).size == (4, 8)
    picture.save(tmp_path / "damaged.png", exif=b"Exif\x00\x00MM\x00*garbage")
    with pytest.warns(UserWarning, match="EXIF"):
        assert image_files.read(tmp_path / "damaged.png").size == (8, 4)


def test_there_and_back() -> None:
    for name, mode in [("crate_mae_tiny", "RGB"), ("vit_mae_small", "L")]:
        model = small_model(name, channels=len(mode), mean=(), std=())
        picture = gradient(mode)
        assert np.array_equal(np.asarray(model.to_image(model.preprocess(picture))), np.asarray(picture))


def test_zero_is_the_mean_colour() -> None:
    model = small_model("crate_mae_tiny")
    picture = np.asarray(model.to_image(torch.zeros(3, 12, 24)))
    assert (picture == np.round(255 * np.array([0.485, 0.456, 0.406]))).all()


def bomb() -> bytes:
    """A PNG header that claims 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_what_can_t_be_read_gets_one_sentence(tmp_path: Path) -> None:
    gradient("RGB").save(tmp_path / "whole.png")
    data = (tmp_path / "whole.png").read_bytes()
    bad = {"cut.png": data[: len(data) // 2], "empty.png": b"", "text.png": b"hello", "bomb.png": bomb()}
    bad |= {"drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            image_files.read(tmp_path / name)
    with pytest.raises(UserError, match="no image"):
        image_files.read(tmp_path / "missing.png")
    with pytest.raises(UserError, match="can't be read"):
        image_files.read(tmp_path)
    with pytest.raises(UserError, match="no pixels"):
        image_files.read(Image.new("RGB", (0, 5)))


def test_channels_that_no_picture_has() -> None:
    model = small_model("crate_mae_tiny", channels=2)
    with pytest.raises(UserError, match="2 channels"):
        model.preprocess(gradient("RGB"))
    with pytest.raises(UserError, match="1, 3 or 4"):
        model.to_image(torch.zeros(2, 12, 24))


def test_normalised_targets_are_undone_with_the_right_statistics() -> None:
    model = small_model("vit_mae_small", norm_pix_loss=True)
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(1, 3, 12, 24, generator=generator) * 2 + 1
    mask = torch.zeros(12, dtype=torch.bool)
    mask[:3] = True
    out = model(batch, mask)
    assert "original" in out.caption
    patches = out.patches
    own = out.prediction * (patches.var(-1, keepdim=True) + 1e-6).sqrt() + patches.mean(-1, keepdim=True)
    visible = patches[:, 3:]
    blind = out.prediction * (visible.var(-1) + 1e-6).sqrt().mean() + visible.mean()
    for completed, expected in [
        (model.complete(batch, mask), own),
        (model.complete(batch, mask, original_known=False), blind),
    ]:
        torch.testing.assert_close(crate_mae.tokens.patchify(completed, (4, 6))[:, :3], expected[:, :3])
    unknown = batch.clone()
    unknown[:, :, :4, :18] = float("nan")  # what was never known must not matter
    torch.testing.assert_close(
        model.complete(unknown, mask, original_known=False), model.complete(batch, mask, original_known=False)
    )
