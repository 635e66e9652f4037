"""Good image files of every format and layout that damage begins from."""

import io
import struct
import zlib
from functools import cache

import numpy as np
from PIL import Image

SIZE = 48
TIFF_LAYOUTS = ("raw", "packbits", "tiff_lzw", "tiff_adobe_deflate", "jpeg", "group3", "group4", "zstd")


@cache
def pictures() -> dict[str, list[bytes]]:
    """Encoded files by format."""
    colour, gray = _scene("RGB"), _scene("L")
    alpha = colour.convert("RGBA")
    alpha.putalpha(gray)
    frames = [colour.rotate(angle) for angle in (0, 30, 60)]
    exif = Image.Exif()
    exif[0x0112] = 6
    bilevel = gray.convert("1")
    return {
        "JPEG": [
            _saved(colour, "JPEG", exif=exif),
            _saved(colour, "JPEG", progressive=True),
            _saved(gray, "JPEG"),
            _saved(colour.convert("CMYK"), "JPEG"),
        ],
        "PNG": [
            _saved(colour, "PNG"),
            _saved(alpha, "PNG", exif=exif),
            _saved(colour.quantize(16), "PNG"),
            _saved(Image.fromarray(np.arange(SIZE * SIZE, dtype=np.uint16).reshape(SIZE, SIZE)), "PNG"),
            _saved(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        ],
        "GIF": [_saved(colour, "GIF"), _saved(frames[0], "GIF", save_all=True, append_images=frames[1:])],
        "WEBP": [
            _saved(colour, "WEBP"),
            _saved(alpha, "WEBP", lossless=True),
            _saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        ],
        "TIFF": [
            *(
                _saved(bilevel if layout.startswith("group") else colour, "TIFF", compression=layout)
                for layout in TIFF_LAYOUTS
            ),
            _saved(alpha, "TIFF"),
            _saved(frames[0], "TIFF", save_all=True, append_images=frames[1:]),
            tiled_tiff(np.asarray(gray)),
        ],
        "BMP": [_saved(colour, "BMP"), _saved(gray, "BMP"), _saved(bilevel, "BMP"), _saved(alpha, "BMP")],
    }


def _scene(mode: str) -> Image.Image:
    """Smooth parts and edges, so that every coder has something to do."""
    y, x = np.mgrid[0:SIZE, 0:SIZE]
    planes = [127 + 120 * np.sin(x / 7 + y / 11 + phase) + 40 * (x > 20) * (y > 30) for phase in range(3)]
    image = Image.fromarray(np.stack(planes, -1).clip(0, 255).astype(np.uint8))
    return image.convert(mode)


def _saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def tiled_tiff(gray: np.ndarray, tile: int = 16) -> bytes:
    """A deflated TIFF in tiles, which Pillow reads and does not write."""
    height, width = gray.shape
    tiles = [
        zlib.compress(gray[top : top + tile, left : left + tile].tobytes())
        for top in range(0, height, tile)
        for left in range(0, width, tile)
    ]
    count, short, long = len(tiles), 3, 4
    tags = [(256, width), (257, height), (258, 8), (259, 8), (262, 1), (277, 1), (322, tile), (323, tile)]
    places = 8 + 2 + 12 * (len(tags) + 2) + 4
    first = places + 8 * count
    offsets = [first + sum(map(len, tiles[:number])) for number in range(count)]
    entries = [struct.pack("<HHIHxx", tag, short, 1, value) for tag, value in tags]
    entries += [struct.pack("<HHII", tag, long, count, places + 4 * count * at) for at, tag in enumerate((324, 325))]
    head = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    return head + struct.pack(f"<{count}I", *offsets) + struct.pack(f"<{count}I", *map(len, tiles)) + b"".join(tiles)
