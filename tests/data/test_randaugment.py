"""RandAugment against torchvision's, picture by picture."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from crate_mae.data.randaugment import OPERATIONS, magnitudes, rand_augment, smooth
from crate_mae.torchvision_fix import torchvision
from tests.data.conftest import picture

NAMES = list(torchvision.transforms.RandAugment()._augmentation_space(31, (8, 8)))


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(48, 31), (2, 5), (1, 1)])
def test_every_draw_is_torchvisions(mode: str, size: tuple[int, int]) -> None:
    image = picture(0, size).convert(mode)
    for strength in (0, 14, 15, 30):
        for seed in range(40):
            torch.manual_seed(seed)
            expected = torchvision.transforms.RandAugment(2, strength)(image)
            found = rand_augment(image, 2, strength, torch.Generator().manual_seed(seed))
            assert found.tobytes() == expected.tobytes(), (strength, seed)


@pytest.mark.parametrize("number", range(len(OPERATIONS)), ids=NAMES)
def test_every_operation_at_every_strength(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    image, apply = picture(1, (40, 29)), torchvision.transforms.autoaugment._apply_op
    nearest = torchvision.transforms.InterpolationMode.NEAREST
    for strength in range(31):
        values, signed = torchvision.transforms.RandAugment()._augmentation_space(31, (29, 40))[NAMES[number]]
        amount = values[strength].item() if values.ndim else 0.0
        assert magnitudes(strength, (40, 29))[number] == (amount, signed)
        for sign in (1, -1) if signed else (1,):
            expected = apply(image, NAMES[number], sign * amount, nearest, None)
            assert OPERATIONS[number](image, sign * amount).tobytes() == expected.tobytes(), (strength, sign)


@pytest.mark.parametrize("shape", [(7, 9, 3), (3, 3, 3), (3, 4), (2, 9, 3), (9, 1)])
def test_smoothing_is_pillows(shape: tuple[int, ...]) -> None:
    for seed in range(20):
        pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
        expected = np.asarray(Image.fromarray(pixels).filter(ImageFilter.SMOOTH))
        np.testing.assert_array_equal(smooth(pixels), expected)
