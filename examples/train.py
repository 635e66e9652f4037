"""Pretrain a masked autoencoder in plain PyTorch: load images, draw masks, take steps, save, load again.

    python examples/train.py                    # scikit-learn's digits: a minute on two CPU cores
    python examples/train.py photos 2000        # a folder of your own images, 2000 steps

The checkpoint is written to runs/train; every command takes it, such as ``crate-mae complete`` and ``crate-mae probe``.
``crate-mae pretrain`` adds what a long run needs: augmentation, workers, evaluation, resuming and several processes.
"""

import math
import sys

import torch

import crate_mae
from crate_mae.data.open import open_dataset

OUT = "runs/train"
BATCH, MASK_RATIO, LEARNING_RATE, WEIGHT_DECAY = 64, 0.75, 1e-3, 0.05
DIGITS = {"image_size": 8, "patch_size": 2, "channels": 1, "mean": (0.305,), "std": (0.376,)}
PHOTOS = {"image_size": 64, "patch_size": 8}


def read_images(model: crate_mae.MaskedAutoencoder, data: str, split: str) -> torch.Tensor:
    """All images of a split, (n, C, H, W), resized and normalised for the model; they are kept in memory."""
    source = open_dataset(data, split)
    return torch.stack([model.preprocess(source.read(index)) for index in range(len(source))])


def main(data: str = "digits", steps: int = 1000) -> None:
    generator = torch.Generator().manual_seed(0)  # of the weights, the batches and the masks
    shape = DIGITS if data == "digits" else PHOTOS
    model = crate_mae.create_model("crate_mae_tiny", dim=192, depth=2, heads=6, **shape, generator=generator)
    train, val = read_images(model, data, "train"), read_images(model, data, "val")
    val_mask = crate_mae.random_mask(len(val), model.num_patches, MASK_RATIO, generator)

    exempt = model.no_weight_decay()  # vectors and position tables
    groups: dict[float, list[torch.nn.Parameter]] = {0.0: [], WEIGHT_DECAY: []}
    for name, parameter in model.named_parameters():
        groups[0.0 if name in exempt else WEIGHT_DECAY].append(parameter)
    parameters = [{"params": group, "weight_decay": decay} for decay, group in groups.items()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95))
    warmup = max(1, steps // 10)  # linear, then a cosine to zero
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (1 + math.cos(math.pi * step / steps)) / 2)
    )

    for step in range(1, steps + 1):
        images = train[torch.randint(len(train), (BATCH,), generator=generator)]
        mask = crate_mae.random_mask(BATCH, model.num_patches, MASK_RATIO, generator)
        loss = model(images, mask).loss  # mean squared error over the masked patches
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            with torch.no_grad():
                print(f"step {step}: training loss {loss:.3f}, validation loss {model(val, val_mask).loss:.3f}")

    model.save(OUT)
    again = crate_mae.load(OUT)
    with torch.no_grad():
        print(f"Saved {OUT}; loaded again, its validation loss is {again(val, val_mask).loss:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
